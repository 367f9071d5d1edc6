// Loading: agree that the file is whole and of this model, then every rank reads its slices.
#include <algorithm>
#include <array>
#include <map>

#include "io/beside.hpp"
#include "io/checkpoint_format.hpp"
#include "io/failure.hpp"
#include "io/host_window.hpp"
#include "io/load_plan.hpp"
#include "io/scan_sums.hpp"
#include "io/slice_geometry.hpp"
#include "trireme/io/checkpoint.hpp"

namespace trireme {
namespace {

constexpr int kShown = 10;

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16;
}

void convert(DType from, std::span<const std::byte> source, std::span<std::byte> target) {
  if (from == DType::bf16) {
    const auto* in = reinterpret_cast<const uint16_t*>(source.data());
    auto* out = reinterpret_cast<float*>(target.data());
    for (size_t i = 0; i < target.size() / sizeof(float); ++i) out[i] = from_bf16(in[i]);
  } else {
    const auto* in = reinterpret_cast<const float*>(source.data());
    auto* out = reinterpret_cast<uint16_t*>(target.data());
    for (size_t i = 0; i < target.size() / sizeof(uint16_t); ++i) out[i] = to_bf16(in[i]);
  }
}

std::string group_of(const std::string& name) {
  return name.substr(0, name.find('/'));
}

// A list in words, cut at kShown.
class Complaints {
 public:
  void add(const std::string& text) {
    if (++count_ <= kShown) text_ += (text_.empty() ? "" : "; ") + text;
  }
  void throw_any(const CheckpointFile& file) const {
    require(count_ == 0, ExitCode::bad_config, "{} is of another model: {}{}", file.path().string(),
            text_, count_ > kShown ? fmt::format("; and {} more", count_ - kShown) : "");
  }

 private:
  int count_ = 0;
  std::string text_;
};

// Every slice must find its tensor.
void check_slices(const CheckpointFile& file, std::span<const GlobalSlice> slices) {
  Complaints complaints;
  for (const GlobalSlice& slice : slices) {
    const io::RunWalk inside(slice.whole, slice.origin, slice.local.shape, slice.name);
    const StoredTensor* stored = file.find(slice.name);
    if (stored == nullptr)
      complaints.add(fmt::format("it has no {} {}", slice.name, slice.whole.text()));
    else if (!(stored->whole == slice.whole))
      complaints.add(fmt::format("{} is {} in it, {} here", slice.name, stored->whole.text(),
                                 slice.whole.text()));
    else if (stored->dtype != slice.local.dtype &&
             !(is_float(stored->dtype) && is_float(slice.local.dtype)))
      complaints.add(fmt::format("{} is {} in it, {} here", slice.name, name_of(stored->dtype),
                                 name_of(slice.local.dtype)));
  }
  complaints.throw_any(file);
}

// Every tensor of a group that is asked for must be asked for by some rank. Collective.
void check_nothing_left(const Communicator& world, const CheckpointFile& file,
                        std::span<const GlobalSlice> slices) {
  const std::vector<StoredTensor>& stored = file.tensors();
  std::vector<uint64_t> asked(stored.size(), 0);
  for (const GlobalSlice& slice : slices)
    asked[static_cast<size_t>(file.find(slice.name) - stored.data())] = 1;
  world.sum_each(asked);
  std::map<std::string, bool> wanted;
  for (size_t i = 0; i < stored.size(); ++i)
    if (asked[i] != 0) wanted[group_of(stored[i].name)] = true;
  Complaints complaints;
  for (size_t i = 0; i < stored.size(); ++i)
    if (asked[i] == 0 && wanted.contains(group_of(stored[i].name)))
      complaints.add(fmt::format("it holds {} {}, which this model does not have", stored[i].name,
                                 stored[i].whole.text()));
  complaints.throw_any(file);
}

// Reads slices a window at a time; what a window holds is checked beside the reading of the next.
class SliceReader {
 public:
  SliceReader(const CheckpointFile& file, const CheckpointContext& context, SliceMemory memory)
      : file_(file), window_(context.stream, memory), scans_(file.tensors().size() + 1) {}

  // Adds what it reads to the checksums where it counts.
  void read(const GlobalSlice& slice, bool counts) {
    const StoredTensor& stored = *file_.find(slice.name);
    const io::RunWalk walk(slice.whole, slice.origin, slice.local.shape, slice.name);
    const auto widest =
        static_cast<int64_t>(std::max(size_of(stored.dtype), size_of(slice.local.dtype)));
    const int64_t step = io::HostWindow::kBytes / widest;
    for (int64_t i = 0; i < walk.runs(); ++i) {
      const io::Run run = walk.run(i);
      // Within a run the system sees by itself what will be read.
      if (i + 1 < walk.runs()) {
        const io::Run next = walk.run(i + 1);
        file_.prepare(stored, next.whole_index, std::min(step, next.count));
      }
      for (int64_t at = 0; at < run.count; at += step) {
        const int64_t count = std::min(step, run.count - at);
        read_part(slice, stored, {run.whole_index + at, run.local_index + at, count}, counts);
      }
    }
  }
  // The sums of all that was read, as of CheckpointFile::scan_share.
  const std::vector<ElementScan>& finish() {
    beside_.wait_for_all_but(0);
    return scans_;
  }

 private:
  void read_part(const GlobalSlice& slice, const StoredTensor& stored, const io::Run& part,
                 bool counts) {
    // Windows and converted elements lie in two buffers by turns.
    beside_.wait_for_all_but(1);
    const std::span<std::byte> target = window_.to_fill(slice.local, part.local_index, part.count);
    std::span<std::byte> bytes = target;
    if (stored.dtype != slice.local.dtype) {
      std::swap(converted_[0], converted_[1]);
      converted_[0].resize(static_cast<size_t>(part.count) * size_of(stored.dtype));
      bytes = converted_[0];
    }
    file_.read(stored, part.whole_index, bytes);
    if (counts)
      beside_.start(bytes.size(), [this, &stored, bytes, first = part.whole_index] {
        scans_[static_cast<size_t>(&stored - file_.tensors().data()) + 1].add(
            scan_elements(stored.dtype, bytes, first));
      });
    if (stored.dtype != slice.local.dtype) convert(stored.dtype, bytes, target);
    window_.filled(slice.local, part.local_index, part.count);
  }

  const CheckpointFile& file_;
  io::HostWindow window_;
  std::array<std::vector<std::byte>, 2> converted_;  // in the stored type
  std::vector<ElementScan> scans_;
  io::Beside beside_;  // uses the others
};

// Collective. Opens the file on every rank and makes sure that they all see the same one.
std::optional<io::Failure> open_together(const Communicator& world,
                                         const std::filesystem::path& path,
                                         std::optional<CheckpointFile>& file) {
  auto failure = io::first_failure(world, io::attempt([&] { file.emplace(path); }));
  if (failure) return failure;
  const auto mine = static_cast<int64_t>(file->fingerprint());
  if (world.min(mine) == world.max(mine)) return std::nullopt;
  return io::Failure{ExitCode::no_input,
                     path.string() + " is not the same file on every host: use a shared directory"};
}

// Collective. Reads the slices, and of what no slice holds every rank a share; then all of the file
// was read once, and its sums must be right.
void read_and_verify(const CheckpointContext& context, const CheckpointFile& file,
                     std::span<const GlobalSlice> mine, SliceMemory memory) {
  const Communicator& world = context.world;
  const io::LoadPlan plan = io::plan_load(world, file, mine);
  SliceReader reader(file, context, memory);
  std::vector<ElementScan> scans;
  io::throw_first(world, io::attempt([&] {
                    for (size_t i = 0; i < mine.size(); ++i) {
                      const StoredTensor* tensor = file.find(mine[i].name);
                      const auto index = static_cast<size_t>(tensor - file.tensors().data());
                      reader.read(mine[i], plan.counts[i] && plan.covered[index]);
                    }
                    scans = file.scan_share(world.rank(), world.size(), plan.covered);
                    const std::vector<ElementScan>& read = reader.finish();
                    for (size_t i = 0; i < scans.size(); ++i) scans[i].add(read[i]);
                  }));
  io::sum_scans(world, scans);
  const std::string fault = file.judge(scans).fault();
  require(fault.empty(), ExitCode::bad_data, "{}: {}; use an older checkpoint",
          file.path().string(), fault);
}

}  // namespace

CheckpointHeader read_header(const CheckpointContext& context, const std::filesystem::path& path) {
  std::string text;
  io::throw_first(context.world, io::attempt([&] {
                    if (context.world.rank() == 0) text = io::encode_header(read_header(path));
                  }));
  return io::decode_header(context.world.broadcast(text, 0), path.string());
}

std::string fault_of_checkpoint(const CheckpointContext& context,
                                const std::filesystem::path& path) {
  const Communicator& world = context.world;
  std::optional<CheckpointFile> file;
  auto failure = open_together(world, path, file);
  if (failure) return failure->text;
  std::vector<ElementScan> scans(file->tensors().size() + 1);
  failure = io::first_failure(
      world, io::attempt([&] { scans = file->scan_share(world.rank(), world.size()); }));
  if (failure) return failure->text;
  io::sum_scans(world, scans);
  return file->judge(scans).fault();
}

void load_checkpoint(const CheckpointContext& context, const std::filesystem::path& path,
                     std::span<const GlobalSlice> slices, Trust trust, SliceMemory memory) {
  const Communicator& world = context.world;
  std::vector<GlobalSlice> mine;
  for (const GlobalSlice& slice : slices)
    if (!slice.local.empty()) mine.push_back(slice);
  std::optional<CheckpointFile> file;
  if (const auto failure = open_together(world, path, file))
    throw Error(failure->code, failure->text);
  io::throw_first(world, io::attempt([&] { check_slices(*file, mine); }));
  check_nothing_left(world, *file, mine);
  context.stream.synchronize();
  if (trust == Trust::verify) {
    read_and_verify(context, *file, mine, memory);
    return;
  }
  io::throw_first(world, io::attempt([&] {
                    SliceReader reader(*file, context, memory);
                    for (const GlobalSlice& slice : mine) reader.read(slice, false);
                  }));
}

}  // namespace trireme
