// trireme bench save DIRECTORY: how fast a state is saved and loaded there, and how long training
// pauses for it, beside plain writes, reads and copies of as many bytes, turn by turn.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "app/arguments.hpp"
#include "app/bench.hpp"
#include "trireme/io/background_save.hpp"
#include "trireme/train/phases.hpp"

namespace trireme::app {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kPiece = int64_t{4} << 20;

// A state of about so many bytes, in tensors of 4096 columns, rows cut over the ranks.
class State {
 public:
  State(const Communicator& world, Stream& stream, int64_t bytes) {
    constexpr int64_t kColumns = 4096, kTensors = 24;
    const int64_t ranks = world.size(), rank = world.rank();
    const int64_t rows = std::max(ranks, bytes / (kColumns * kTensors * int64_t{sizeof(float)}));
    const int64_t first = rows * rank / ranks, last = rows * (rank + 1) / ranks;
    const int64_t mine = (last - first) * kColumns;
    memory_ = Buffer(static_cast<size_t>(kTensors * mine) * sizeof(float), Memory::device);
    for (int64_t t = 0; t < kTensors; ++t) {
      std::byte* data = memory_.data() + static_cast<size_t>(t * mine) * sizeof(float);
      slices_.push_back({fmt::format("weights/tensor.{}", t),
                         {rows, kColumns},
                         {first, 0},
                         {data, {last - first, kColumns}, DType::f32}});
      bytes_ += rows * kColumns * int64_t{sizeof(float)};
    }
    fill(stream, mine);
  }
  const std::vector<GlobalSlice>& slices() const { return slices_; }
  const Buffer& memory() const { return memory_; }
  int64_t bytes() const { return bytes_; }

 private:
  void fill(Stream& stream, int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 65521) * 0x1p-16f;
    for (const GlobalSlice& slice : slices_)
      copy_to_device(stream, std::as_bytes(std::span(values)), slice.local);
    stream.synchronize();
  }
  Buffer memory_;
  std::vector<GlobalSlice> slices_;
  int64_t bytes_ = 0;
};

// Plain files of rank 0, without checksums or agreement. Returns seconds, on all ranks.
double plain_write(const Communicator& world, const std::string& path, int64_t bytes) {
  world.barrier();
  const auto start = Clock::now();
  if (world.rank() == 0) {
    const std::vector<std::byte> piece(static_cast<size_t>(kPiece), std::byte{17});
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool written = file >= 0;
    for (int64_t at = 0; written && at < bytes; at += kPiece)
      written = ::pwrite(file, piece.data(), piece.size(), at) == kPiece;
    written = written && ::fsync(file) == 0;
    if (file >= 0) ::close(file);
    require(written, ExitCode::io, "cannot write {}: {}", path, std::strerror(errno));
  }
  world.barrier();
  return world.max(seconds_since(start));
}

void forget_cached(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

double plain_read(const Communicator& world, const std::string& path) {
  world.barrier();
  const auto start = Clock::now();
  if (world.rank() == 0) {
    std::vector<std::byte> piece(static_cast<size_t>(kPiece));
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    require(file >= 0, ExitCode::io, "cannot read {}: {}", path, std::strerror(errno));
    for (int64_t at = 0; ::pread(file, piece.data(), piece.size(), at) > 0;) at += kPiece;
    ::close(file);
  }
  world.barrier();
  return world.max(seconds_since(start));
}

struct Turn {
  double write = 0, save = 0, read = 0, load = 0, copy = 0, pause = 0;
};

CheckpointHeader header_of(int64_t step) {
  CheckpointHeader header;
  header.step = step;
  return header;
}

class SaveBench {
 public:
  SaveBench(const CheckpointContext& context, const std::filesystem::path& directory, int64_t bytes)
      : context_(context),
        state_(context.world, context.stream, bytes),
        target_(state_.memory().bytes(), Memory::pinned),
        directory_(context, directory, nullptr),
        background_(context, directory_, static_cast<int64_t>(state_.memory().bytes())),
        plain_((directory / "plain").string()) {
    if (target_.bytes() > 0) std::memset(target_.data(), 0, target_.bytes());
  }
  ~SaveBench() {
    context_.world.barrier();
    if (context_.world.rank() != 0) return;
    ::unlink(plain_.c_str());
    for (const NamedCheckpoint& file : list_checkpoints(directory_.path())) {
      std::filesystem::path beside = file.path;
      ::unlink(file.path.c_str());
      ::unlink(beside.replace_extension(".json").c_str());
    }
  }
  int64_t bytes() const { return state_.bytes(); }

  Turn turn(int64_t step) {
    const Communicator& world = context_.world;
    Turn t;
    t.write = plain_write(world, plain_, bytes());
    world.barrier();
    const SaveReport report = directory_.save(header_of(step), state_.slices(), "{}\n", 1);
    t.save = report.seconds;
    t.copy = copy();
    background_.start(header_of(step + 1), state_.slices(), "{}\n", 1);
    t.pause = background_.finish().pause_seconds;
    t.copy = std::min(t.copy, copy());
    const std::string path = directory_.path_of(step + 1).string();
    forget_cached(plain_);
    t.read = plain_read(world, plain_);
    forget_cached(path);
    forget_cached(plain_);  // as before the plain read: as much memory has just become free
    world.barrier();
    const auto start = Clock::now();
    load_checkpoint(context_, path, state_.slices());
    t.load = world.max(seconds_since(start));
    return t;
  }

 private:
  // All of this rank's bytes, in as many pieces as the state has tensors.
  double copy() {
    context_.world.barrier();
    const auto start = Clock::now();
    size_t at = 0;
    for (const GlobalSlice& slice : state_.slices()) {
      copy_to_host(context_.stream, slice.local, {target_.data() + at, slice.local.bytes()});
      at += slice.local.bytes();
    }
    context_.stream.synchronize();
    return context_.world.max(seconds_since(start));
  }

  CheckpointContext context_;
  State state_;
  Buffer target_;
  CheckpointDirectory directory_;
  BackgroundSave background_;
  std::string plain_;
};

double median_of(const std::vector<Turn>& turns, const std::function<double(const Turn&)>& value) {
  std::vector<double> values;
  for (const Turn& turn : turns) values.push_back(value(turn));
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int bench_save(MpiSession& session, std::vector<std::string> words, const std::string& usage) {
  const Arguments arguments(words, {"bytes", "turns", "buffered"}, usage);
  require(arguments.positions().size() == 1, ExitCode::usage, "one directory is needed\nusage: {}",
          usage);
  const int64_t bytes = arguments.number("bytes", 1, int64_t{2} << 30);
  const int64_t turns = arguments.number("turns", 1, 5);
  const Communicator& world = session.world();
  const Log log(world.rank(), LogLevel::info, stdout);
  Device device({.node_rank = session.node_rank(), .node_ranks = session.node_ranks()});
  const CheckpointHints hints{.direct = !arguments.has("buffered")};
  SaveBench bench({world, device.compute(), log, hints}, arguments.positions()[0], bytes);
  const auto total = static_cast<double>(bench.bytes());
  log.info("{} rank{}, {:.2f} GB, {}", world.size(), world.size() == 1 ? "" : "s", total * 1e-9,
           device.description());
  log.info("{:>5} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12}", "turn", "write GB/s", "save GB/s",
           "read GB/s", "load GB/s", "copy s", "pause s");
  std::vector<Turn> all;
  for (int64_t i = 0; i < turns; ++i) {
    const Turn t = all.emplace_back(bench.turn(2 * i + 1));
    log.info("{:>5} {:>12.3f} {:>12.3f} {:>12.3f} {:>12.3f} {:>12.3f} {:>12.3f}", i + 1,
             total / t.write * 1e-9, total / t.save * 1e-9, total / t.read * 1e-9,
             total / t.load * 1e-9, t.copy, t.pause);
  }
  log.info(
      "medians turn by turn: save {:.2f} of a plain write, load {:.2f} of a plain read, pause "
      "{:.2f} of a plain copy",
      median_of(all, [](const Turn& t) { return t.write / t.save; }),
      median_of(all, [](const Turn& t) { return t.read / t.load; }),
      median_of(all, [](const Turn& t) { return t.pause / t.copy; }));
  return 0;
}

}  // namespace trireme::app
