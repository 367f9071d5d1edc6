#include "trireme/train/watchdog.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <vector>

#include "trireme/base/error.hpp"

namespace trireme {

// The memory-mapped record of a rank. Readers may see a phase half written; it is only shown.
struct Watchdog::Record {
  char host[64];
  int64_t step;
  int64_t phases_begun;
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
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  require(file >= 0 && ::ftruncate(file, sizeof(Record)) == 0, ExitCode::io,
          "cannot write {}: {}. Choose a run.directory that can be written", path.string(),
          std::strerror(errno));
  void* memory = ::mmap(nullptr, sizeof(Record), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  require(memory != MAP_FAILED, ExitCode::io, "cannot map {}: {}", path.string(),
          std::strerror(errno));
  record_ = static_cast<Record*>(memory);
  *record_ = {};
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

std::string Watchdog::report(int lines) const {
  struct Seen {
    int rank;
    Record record;
  };
  std::vector<Seen> seen;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    Seen one{rank, {}};
    std::ifstream file(record_path(options_.directory, rank), std::ios::binary);
    if (file.read(reinterpret_cast<char*>(&one.record), sizeof(Record))) seen.push_back(one);
  }
  auto behind = [](const Seen& a, const Seen& b) {
    return std::pair(a.record.step, a.record.phases_begun) <
           std::pair(b.record.step, b.record.phases_begun);
  };
  std::stable_sort(seen.begin(), seen.end(), behind);
  std::string text;
  for (size_t i = 0; i < seen.size() && i < static_cast<size_t>(lines); ++i) {
    Record& r = seen[i].record;
    r.host[sizeof(r.host) - 1] = r.phase[sizeof(r.phase) - 1] = '\0';
    text += fmt::format("  rank {} on {}: step {}, {}{}\n", seen[i].rank, r.host, r.step, r.phase,
                        i == 0 ? "  <- furthest behind" : "");
  }
  if (seen.size() > static_cast<size_t>(lines))
    text += fmt::format("  and {} more\n", seen.size() - static_cast<size_t>(lines));
  return text;
}

void Watchdog::watch() {
  const double deadline = options_.deadline_seconds;
  const auto pause = std::chrono::duration<double>(std::clamp(deadline / 10, 0.05, 1.0));
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, pause, [this] { return ending_; })) {
    const int64_t started = started_ns_;
    if (started == 0 || static_cast<double>(now_ns() - started) * 1e-9 < deadline) continue;
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
