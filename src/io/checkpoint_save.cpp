// A save: plan and reserve together, write alone, agree and rename together.
#include <algorithm>
#include <chrono>

#include "io/failure.hpp"
#include "io/host_window.hpp"
#include "io/posix_file.hpp"
#include "io/save_plan.hpp"
#include "io/scan_sums.hpp"
#include "io/slice_geometry.hpp"
#include "trireme/io/checkpoint.hpp"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Rank 0: the temporary file with all its space and HDF5's metadata; everything else reads as zero.
void create_temporary(const std::filesystem::path& path, const io::FileLayout& layout) {
  io::remove_file(path);
  io::PosixFile file = io::PosixFile::create(path);
  file.reserve(layout.index.file_bytes);
  for (const io::MetadataPiece& piece : layout.metadata)
    file.write_at(std::as_bytes(std::span(piece.bytes)), piece.offset);
  file.close();
}

std::string non_finite_tensors(const io::FileIndex& index, std::span<const ElementScan> scans) {
  constexpr int kShown = 5;
  int count = 0;
  std::string text;
  for (size_t i = 0; i < scans.size(); ++i) {
    if (scans[i].non_finite() == 0) continue;
    if (++count <= kShown)
      text += fmt::format("{}{} ({} NaN, {} infinite)", text.empty() ? "" : ", ",
                          index.tensors[i].name, scans[i].nans, scans[i].infinities);
  }
  if (count > kShown) text += fmt::format(" and {} more", count - kShown);
  return text;
}

}  // namespace

struct CheckpointSave::Impl {
  const CheckpointContext context;
  std::filesystem::path path, temporary;
  std::vector<GlobalSlice> slices;  // with elements only
  io::HostWindow window;
  io::FileIndex index;
  Clock::time_point start = Clock::now();
  bool owns_temporary = false;

  Impl(const CheckpointContext& c, const std::filesystem::path& p, SliceMemory memory)
      : context(c), path(p), temporary(p.string() + ".tmp"), window(c.stream, memory) {}
  bool is_writer() const { return context.world.rank() == 0; }
  void plan(const CheckpointHeader& header);
  void write_slice(const io::PosixFile& file, const GlobalSlice& slice, WriteResult& result);
  void finish(const std::string& sidecar, const std::function<void()>& before_rename);
  void remove_temporary() noexcept;
};

void CheckpointSave::Impl::plan(const CheckpointHeader& header) {
  std::string packed;
  io::throw_first(context.world, io::attempt([&] { packed = io::pack_slices(slices); }));
  const std::vector<std::string> all = context.world.gather_all(packed);
  std::string plan;
  io::throw_first(context.world, io::attempt([&] {
                    if (!is_writer()) return;
                    const io::FileLayout layout =
                        io::lay_out_checkpoint(header, io::merge_slices(all));
                    owns_temporary = true;
                    create_temporary(temporary, layout);
                    plan = io::pack_index(layout.index);
                  }));
  index = io::unpack_index(context.world.broadcast(plan, 0));
}

CheckpointSave::CheckpointSave(const CheckpointContext& context, const std::filesystem::path& path,
                               const CheckpointHeader& header, std::span<const GlobalSlice> slices,
                               SliceMemory memory)
    : impl_(std::make_unique<Impl>(context, path, memory)) {
  for (const GlobalSlice& slice : slices)
    if (!slice.local.empty()) impl_->slices.push_back(slice);
  context.stream.synchronize();
  try {
    impl_->plan(header);
  } catch (...) {
    impl_->remove_temporary();
    throw;
  }
}

CheckpointSave::~CheckpointSave() {
  impl_->remove_temporary();
}

void CheckpointSave::Impl::remove_temporary() noexcept {
  if (owns_temporary) std::remove(temporary.c_str());
  owns_temporary = false;
}

void CheckpointSave::Impl::write_slice(const io::PosixFile& file, const GlobalSlice& slice,
                                       WriteResult& result) {
  const auto place = std::lower_bound(
      index.tensors.begin(), index.tensors.end(), slice.name,
      [](const StoredTensor& tensor, const std::string& name) { return tensor.name < name; });
  ElementScan& scan = result.scans[static_cast<size_t>(place - index.tensors.begin())];
  const auto width = static_cast<int64_t>(size_of(slice.local.dtype));
  const io::RunWalk walk(slice.whole, slice.origin, slice.local.shape, slice.name);
  for (int64_t i = 0; i < walk.runs(); ++i) {
    const io::Run run = walk.run(i);
    const int64_t step = io::HostWindow::kBytes / width;
    for (int64_t at = 0; at < run.count; at += step) {
      const int64_t count = std::min(step, run.count - at);
      const auto bytes = window.read(slice.local, run.local_index + at, count);
      scan.add(scan_elements(slice.local.dtype, bytes, run.whole_index + at));
      file.write_at(bytes, place->offset + (run.whole_index + at) * width);
      result.bytes += static_cast<int64_t>(bytes.size());
    }
  }
}

WriteResult CheckpointSave::write() noexcept {
  WriteResult result;
  const Clock::time_point start = Clock::now();
  const auto failure = io::attempt([&] {
    result.scans.resize(impl_->index.tensors.size());
    if (impl_->slices.empty() && !impl_->is_writer()) return;
    io::PosixFile file = io::PosixFile::open_to_write(impl_->temporary);
    for (const GlobalSlice& slice : impl_->slices) impl_->write_slice(file, slice, result);
    file.sync();
    file.close();
  });
  result.ok = !failure.has_value();
  if (failure) result.fault = failure->text;
  result.seconds = seconds_since(start);
  return result;
}

void CheckpointSave::Impl::finish(const std::string& sidecar,
                                  const std::function<void()>& before_rename) {
  const std::vector<io::Record> records = io::encode_records(index);
  const io::Block block = io::encode_block(index, records);
  io::PosixFile file = io::PosixFile::open_to_write(temporary);
  file.write_at(std::as_bytes(std::span(records)), index.records_offset);
  file.write_at(std::as_bytes(std::span(&block, 1)), 0);
  file.sync();
  file.close();
  if (before_rename) before_rename();
  std::filesystem::path beside = path;
  io::write_text_file(beside.replace_extension(".json"), sidecar);
  io::rename_file(temporary, path);
  owns_temporary = false;
  io::sync_directory(path.parent_path());
}

SaveReport CheckpointSave::commit(const WriteResult& mine, const std::string& sidecar,
                                  const std::function<void()>& before_rename) {
  const Communicator& world = impl_->context.world;
  try {
    std::optional<io::Failure> failure;
    if (!mine.ok) failure = io::Failure{ExitCode::io, mine.fault};
    io::throw_first(world, failure);
    std::vector<ElementScan> scans = mine.scans;
    io::sum_scans(world, scans);
    const std::string bad = non_finite_tensors(impl_->index, scans);
    require(bad.empty(), ExitCode::internal, "not saved as {}: non-finite values in {}",
            impl_->path.string(), bad);
    for (size_t i = 0; i < scans.size(); ++i) impl_->index.tensors[i].sum = scans[i].sum;
    io::throw_first(world, io::attempt([&] {
                      if (impl_->is_writer()) impl_->finish(sidecar, before_rename);
                    }));
  } catch (...) {
    impl_->remove_temporary();
    throw;
  }
  SaveReport report{impl_->path, impl_->index.file_bytes, seconds_since(impl_->start), 0, 0};
  report.slowest_seconds = world.max(mine.seconds);
  const int64_t candidate = mine.seconds == report.slowest_seconds ? world.rank() : world.size();
  report.slowest_rank = static_cast<int>(world.min(candidate));
  return report;
}

}  // namespace trireme
