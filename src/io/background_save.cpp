// Two turns of a thread with agreements between them: write (all ranks), then finish (rank 0).
#include "trireme/io/background_save.hpp"

#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>

#include "io/plain_thread.hpp"
#include "trireme/io/snapshot.hpp"

namespace trireme {

struct BackgroundSave::Impl {
  CheckpointContext context;
  CheckpointDirectory& directory;
  Snapshot snapshot;

  std::unique_ptr<CheckpointSave> save;  // the one in flight
  int64_t step = 0;
  std::string sidecar;
  int keep = 0;
  bool finishing = false;  // the second turn
  std::vector<GlobalSlice> copied;
  WriteResult written;
  FinishResult finished;
  double pause_seconds = 0;
  int64_t streamed_bytes = 0;
  std::thread thread;
  std::atomic<bool> working = false;

  Impl(const CheckpointContext& c, CheckpointDirectory& d, int64_t bytes)
      : context(c), directory(d), snapshot(bytes) {}

  // Where the system gives no thread, the work is done at once.
  template <class Work>
  void run(Work work) {
    working = true;
    const auto all = [this, work = std::move(work)] {
      work();
      working = false;
    };
    try {
      thread = io::plain_thread(all);
    } catch (const std::system_error&) {
      all();
    }
  }
  void join() {
    if (thread.joinable()) thread.join();
  }
  void drop() {
    join();
    save.reset();
  }
  SaveReport conclude();
};

BackgroundSave::BackgroundSave(const CheckpointContext& context, CheckpointDirectory& directory,
                               int64_t snapshot_bytes)
    : impl_(std::make_unique<Impl>(context, directory, snapshot_bytes)) {}

BackgroundSave::~BackgroundSave() {
  impl_->drop();
}

void BackgroundSave::start(const CheckpointHeader& header, std::span<const GlobalSlice> slices,
                           const std::string& sidecar, int keep) {
  Impl& s = *impl_;
  require(s.save == nullptr, ExitCode::internal, "a save of step {} is already in flight", s.step);
  const auto start = std::chrono::steady_clock::now();
  s.save = s.directory.begin(header, slices);
  s.step = header.step;
  s.sidecar = sidecar;
  s.keep = keep;
  s.finishing = false;
  s.written = {};
  s.finished = {};
  Snapshot::Parts parts = s.snapshot.take(s.context.stream, slices);
  s.save->write_some(parts.left, SliceMemory::device, s.written);
  s.streamed_bytes = s.written.bytes;
  s.copied = std::move(parts.copied);
  s.run([&s] {
    s.save->write_some(s.copied, SliceMemory::host, s.written);
    s.save->sync(s.written);
  });
  s.pause_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

bool BackgroundSave::in_flight() const {
  return impl_->save != nullptr;
}

int64_t BackgroundSave::step() const {
  return impl_->step;
}

bool BackgroundSave::busy() const {
  return impl_->save != nullptr && impl_->working;
}

SaveReport BackgroundSave::Impl::conclude() {
  SaveReport report = save->conclude(written, finished);
  const Communicator& world = context.world;
  report.pause_seconds = world.max(pause_seconds);
  report.streamed_bytes = world.sum(streamed_bytes);
  if (!report.prune_fault.empty())
    context.log.warning("old checkpoints stay: {}", report.prune_fault);
  save.reset();
  return report;
}

std::optional<SaveReport> BackgroundSave::advance() {
  Impl& s = *impl_;
  s.join();
  try {
    if (s.finishing) return s.conclude();
    s.save->agree(s.written);
  } catch (...) {
    s.drop();
    throw;
  }
  s.finishing = true;
  if (s.context.world.rank() == 0)
    s.run([&s] { s.finished = s.directory.finish(*s.save, s.step, s.sidecar, s.keep); });
  return std::nullopt;
}

SaveReport BackgroundSave::finish() {
  std::optional<SaveReport> report;
  while (!report) report = advance();
  return *report;
}

}  // namespace trireme
