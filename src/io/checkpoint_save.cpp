// A save: plan and reserve together, write alone, agree and rename together.
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "io/beside.hpp"
#include "io/direct_writer.hpp"
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
  SliceMemory memory;
  io::FileIndex index;
  io::PosixFile
      file;  // this rank's, from its first byte to its sync: a failure to sync is seen here
  double plan_seconds = 0;
  bool owns_temporary = false;

  Impl(const CheckpointContext& c, const std::filesystem::path& p, SliceMemory m)
      : context(c), path(p), temporary(p.string() + ".tmp"), memory(m) {}
  bool is_writer() const { return context.world.rank() == 0; }
  void plan(const CheckpointHeader& header);
  void open_file() {
    if (!file.is_open()) file = io::PosixFile::open_to_write(temporary);
  }
  void write_slice(io::HostWindow& window, io::Beside& beside, io::DirectWriter& writer,
                   const GlobalSlice& slice, WriteResult& result) const;
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
                    const io::FileLayout layout = io::lay_out_checkpoint(
                        header, io::merge_slices(all), context.hints.alignment);
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
  const Clock::time_point start = Clock::now();
  try {
    impl_->plan(header);
  } catch (...) {
    impl_->remove_temporary();
    throw;
  }
  impl_->plan_seconds = seconds_since(start);
}

CheckpointSave::~CheckpointSave() {
  impl_->remove_temporary();
}

void CheckpointSave::Impl::remove_temporary() noexcept {
  if (owns_temporary) ::unlink(temporary.c_str());
  owns_temporary = false;
}

// Pieces end where a multiple of the window ends in the file: on stripes, whoever writes next to
// it. A piece is summed beside its writing.
void CheckpointSave::Impl::write_slice(io::HostWindow& window, io::Beside& beside,
                                       io::DirectWriter& writer, const GlobalSlice& slice,
                                       WriteResult& result) const {
  static_assert(io::HostWindow::kBytes <= io::DirectWriter::kLargestPiece);
  const auto place = std::lower_bound(
      index.tensors.begin(), index.tensors.end(), slice.name,
      [](const StoredTensor& tensor, const std::string& name) { return tensor.name < name; });
  ElementScan& scan = result.scans[static_cast<size_t>(place - index.tensors.begin())];
  const auto width = static_cast<int64_t>(size_of(slice.local.dtype));
  const io::RunWalk walk(slice.whole, slice.origin, slice.local.shape, slice.name);
  for (int64_t i = 0; i < walk.runs(); ++i) {
    const io::Run run = walk.run(i);
    for (int64_t at = 0; at < run.count;) {
      const int64_t offset = place->offset + (run.whole_index + at) * width;
      const int64_t room = io::HostWindow::kBytes - offset % io::HostWindow::kBytes;
      // An element may lie across the end: small tensors start anywhere.
      const int64_t count = std::min(run.count - at, std::max<int64_t>(1, room / width));
      beside.wait_for_all_but(1);  // the window holds two pieces
      const auto bytes = window.read(slice.local, run.local_index + at, count);
      beside.start(bytes.size(),
                   [&scan, bytes, dtype = slice.local.dtype, first = run.whole_index + at] {
                     scan.add(scan_elements(dtype, bytes, first));
                   });
      writer.write(bytes, offset);
      result.bytes += static_cast<int64_t>(bytes.size());
      at += count;
    }
  }
}

void CheckpointSave::write_some(std::span<const GlobalSlice> slices, SliceMemory memory,
                                WriteResult& result) noexcept {
  if (!result.fault.empty()) return;
  const Clock::time_point start = Clock::now();
  const auto failure = io::attempt([&] {
    result.scans.resize(impl_->index.tensors.size());
    if (slices.empty()) return;
    impl_->open_file();
    io::HostWindow window(impl_->context.stream, memory);
    io::DirectWriter writer(impl_->file, impl_->context.hints.direct);
    io::Beside beside;
    for (const GlobalSlice& slice : slices)
      impl_->write_slice(window, beside, writer, slice, result);
    beside.wait_for_all_but(0);
    writer.finish();
  });
  if (failure) result.fault = failure->text;
  result.seconds += seconds_since(start);
}

void CheckpointSave::sync(WriteResult& result) noexcept {
  if (!result.fault.empty()) return;
  const Clock::time_point start = Clock::now();
  const auto failure = io::attempt([&] {
    if (impl_->slices.empty() && !impl_->is_writer()) return;
    impl_->open_file();
    impl_->file.sync();
    impl_->file.close();
  });
  if (failure) result.fault = failure->text;
  result.ok = !failure.has_value();
  result.seconds += seconds_since(start);
}

WriteResult CheckpointSave::write() noexcept {
  WriteResult result;
  write_some(impl_->slices, impl_->memory, result);
  sync(result);
  return result;
}

void CheckpointSave::agree(const WriteResult& mine) {
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
  } catch (...) {
    impl_->remove_temporary();
    throw;
  }
}

void CheckpointSave::Impl::finish(const std::string& sidecar,
                                  const std::function<void()>& before_rename) {
  const std::vector<io::Record> records = io::encode_records(index);
  const io::Block block = io::encode_block(index, records);
  io::PosixFile whole = io::PosixFile::open_to_write(temporary);
  whole.write_at(std::as_bytes(std::span(records)), index.records_offset);
  whole.write_at(std::as_bytes(std::span(&block, 1)), 0);
  whole.sync();
  whole.close();
  if (before_rename) before_rename();
  std::filesystem::path beside = path;
  io::write_text_file(beside.replace_extension(".json"), sidecar);
  io::rename_file(temporary, path);
  owns_temporary = false;
  io::sync_directory(path.parent_path());
}

FinishResult CheckpointSave::finish(const std::string& sidecar,
                                    const std::function<void()>& before_rename) noexcept {
  FinishResult result;
  if (!impl_->is_writer()) return result;
  const Clock::time_point start = Clock::now();
  const auto failure = io::attempt([&] { impl_->finish(sidecar, before_rename); });
  if (failure) result.fault = failure->text;
  result.ok = !failure.has_value();
  result.seconds = seconds_since(start);
  return result;
}

SaveReport CheckpointSave::conclude(const WriteResult& mine, const FinishResult& finished) {
  const Communicator& world = impl_->context.world;
  std::optional<io::Failure> failure;
  if (!finished.ok) failure = io::Failure{ExitCode::io, finished.fault};
  try {
    io::throw_first(world, failure);
  } catch (...) {
    impl_->remove_temporary();
    throw;
  }
  SaveReport report;
  report.path = impl_->path;
  report.file_bytes = impl_->index.file_bytes;
  report.slowest_seconds = world.max(mine.seconds);
  report.seconds =
      world.max(impl_->plan_seconds) + report.slowest_seconds + world.max(finished.seconds);
  report.fastest_seconds = world.min(mine.seconds);
  const int64_t candidate = mine.seconds == report.slowest_seconds ? world.rank() : world.size();
  report.slowest_rank = static_cast<int>(world.min(candidate));
  report.prune_fault = finished.prune_fault;
  return report;
}

SaveReport CheckpointSave::commit(const WriteResult& mine, const std::string& sidecar,
                                  const std::function<void()>& before_rename) {
  agree(mine);
  return conclude(mine, finish(sidecar, before_rename));
}

}  // namespace trireme
