#include "trireme/train/watchdog.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <tuple>

#include "trireme/base/error.hpp"

namespace trireme {

// The memory-mapped record of a rank. Readers may see a phase half written; it is only shown.
struct Watchdog::Record {
  char host[64];
  int64_t step;
  int64_t phases_begun;
  int64_t ends;   // 1: this rank ends the job and reports
  int64_t beats;  // of the watching thread: stands still where the process is stopped or gone
  char phase[64];
};

namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::filesystem::path record_path(const std::filesystem::path& directory, int rank) {
  return directory / fmt::format("rank_{:05}", rank);
}

}  // namespace

Watchdog::Watchdog(const Options& options) : options_(options) {
  std::error_code ignored;
  std::filesystem::create_directories(options.directory, ignored);
  const std::filesystem::path path = record_path(options.directory, options.rank);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  // Written, not only made long: memory of a file without space behind it kills its writer.
  const Record empty = {};
  require(file >= 0 && ::pwrite(file, &empty, sizeof(empty), 0) == sizeof(empty), ExitCode::io,
          "cannot write {}: {}. Choose a run.directory that can be written and has space",
          path.string(), std::strerror(errno));
  void* memory = ::mmap(nullptr, sizeof(Record), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  require(memory != MAP_FAILED, ExitCode::io, "cannot map {}: {}", path.string(),
          std::strerror(errno));
  record_ = static_cast<Record*>(memory);
  ::gethostname(record_->host, sizeof(record_->host) - 1);
  if (options.deadline_seconds > 0) thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (record_ != nullptr) ::munmap(record_, sizeof(Record));
  ::unlink(record_path(options_.directory, options_.rank).c_str());
}

void Watchdog::begin(int64_t step) {
  record_->step = step;
  started_ns_ = now_ns();
}

void Watchdog::phase(std::string_view name) {
  const size_t length = std::min(name.size(), sizeof(record_->phase) - 1);
  std::memcpy(record_->phase, name.data(), length);
  record_->phase[length] = '\0';
  record_->phases_begun += 1;
}

void Watchdog::rest() {
  started_ns_ = 0;
  phase("rest");
}

std::vector<Watchdog::Seen> Watchdog::look() const {
  std::vector<Seen> seen;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    Record r = {};
    std::ifstream file(record_path(options_.directory, rank), std::ios::binary);
    if (!file.read(reinterpret_cast<char*>(&r), sizeof(Record))) continue;
    r.host[sizeof(r.host) - 1] = r.phase[sizeof(r.phase) - 1] = '\0';
    seen.push_back({rank, r.host, r.phase, r.step, r.phases_begun, r.beats, r.ends != 0, false});
  }
  return seen;
}

std::string Watchdog::report(int lines) const {
  std::vector<Seen> seen = look();
  // A rank of this host whose thread does not move while we wait is stopped or gone. What other
  // hosts write may reach us late, so nothing is concluded from it.
  if (thread_.joinable()) {
    move_for(std::max(0.5, 3 * pause_seconds()));
    for (const Seen& now : look())
      for (Seen& before : seen)
        before.silent = before.silent || (before.rank == now.rank && now.rank != options_.rank &&
                                          now.host == record_->host && now.beats == before.beats);
  }
  auto order = [](const Seen& s) { return std::tuple(!s.silent, s.step, s.phases_begun); };
  std::stable_sort(seen.begin(), seen.end(),
                   [&](const Seen& a, const Seen& b) { return order(a) < order(b); });
  std::string text;
  for (size_t i = 0; i < seen.size() && i < static_cast<size_t>(lines); ++i) {
    const Seen& s = seen[i];
    const bool behind = i == 0 && order(seen.front()) < order(seen.back());
    text += fmt::format("  rank {} on {}: step {}, {}{}\n", s.rank, s.host, s.step, s.phase,
                        s.silent ? "  <- stopped or gone"
                        : behind ? "  <- furthest behind"
                                 : "");
  }
  if (seen.size() > static_cast<size_t>(lines))
    text += fmt::format("  and {} more\n", seen.size() - static_cast<size_t>(lines));
  return text;
}

// One report is enough. The launcher ends this rank with the one that reports; if it does not, this
// rank goes by itself, moving until then.
void Watchdog::leave_if_others_end_the_job() const {
  auto reports = [this](const Seen& s) { return s.ends && s.rank != options_.rank; };
  if (!std::ranges::any_of(look(), reports)) return;
  move_for(5);
  ::_exit(static_cast<int>(ExitCode::peer));
}

// Waits, and shows the others that this rank is alive.
void Watchdog::move_for(double seconds) const {
  const double pause = pause_seconds();
  for (double waited = 0; waited < seconds; waited += pause) {
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    record_->beats += 1;
  }
}

double Watchdog::pause_seconds() const {
  return std::clamp(options_.deadline_seconds / 10, 0.05, 1.0);
}

void Watchdog::watch() {
  const double deadline = options_.deadline_seconds;
  const auto pause = std::chrono::duration<double>(pause_seconds());
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, pause, [this] { return ending_; })) {
    record_->beats += 1;
    const int64_t started = started_ns_;
    if (started == 0 || static_cast<double>(now_ns() - started) * 1e-9 < deadline) continue;
    leave_if_others_end_the_job();
    record_->ends = 1;
    const std::string text = fmt::format(
        "[rank {}] error: step {} took longer than fault.deadline = {} s, in phase '{}'; the job "
        "is "
        "ended with 76. Progress of the ranks:\n{}",
        options_.rank, record_->step, deadline, record_->phase, report());
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
    ::_exit(static_cast<int>(ExitCode::peer));
  }
}

}  // namespace trireme
