// The lease: `lease.json` in the run directory, made by link(2), which fails where the name exists.
#include "trireme/io/run_lease.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "io/failure.hpp"
#include "io/plain_thread.hpp"
#include "io/posix_file.hpp"

namespace trireme {
namespace {

using Json = nlohmann::json;
using std::chrono::nanoseconds;

std::string first_line(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

// When a process started, in ticks since boot; empty when it is gone or only waits to be buried.
std::string start_of(long process) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", process));
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return "";
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  fields >> field;  // field 3, the state
  if (field == "Z" || field == "X") return "";
  for (int i = 4; i <= 22; ++i) fields >> field;
  return field;
}

std::string process_namespace() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
}

Json own_identity() {
  const char* job = std::getenv("SLURM_JOB_ID");
  return {{"host", host_name()},
          {"process", static_cast<int64_t>(getpid())},
          {"started", start_of(getpid())},
          {"boot", first_line("/proc/sys/kernel/random/boot_id")},
          {"namespace", process_namespace()},
          {"job", job == nullptr ? "" : job}};
}

// A lease file as found.
struct Found {
  std::string text;
  nanoseconds age{0};  // since the last heartbeat, by the file system's clock
};

nanoseconds time_of(const timespec& time) {
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

std::optional<Found> look_at(const std::filesystem::path& path, nanoseconds now) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  Found found;
  found.age = now - time_of(status.st_mtim);
  const auto failure = io::attempt([&] { found.text = io::read_text_file(path, 1 << 16); });
  if (failure && failure->code == ExitCode::no_input) return std::nullopt;
  return found;
}

std::string text_of(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_string()
             ? json[key].get<std::string>()
             : "";
}

long process_of(const Json& json) {
  return json.is_object() && json.contains("process") && json["process"].is_number_integer()
             ? json["process"].get<long>()
             : -1;
}

// Why the lease is dead; empty when its holder may be alive.
std::string death_of(const Found& found, const Json& self, LeaseTimes times) {
  if (found.age > times.stale)
    return fmt::format("it had no heartbeat for {} s",
                       std::chrono::duration_cast<std::chrono::seconds>(found.age).count());
  const Json other = Json::parse(found.text, nullptr, false);
  const long process = process_of(other);
  // Process numbers mean something only within one boot and one process name space.
  const bool comparable = process > 0 && text_of(other, "boot") == text_of(self, "boot") &&
                          text_of(other, "namespace") == text_of(self, "namespace");
  if (!comparable || start_of(process) == text_of(other, "started")) return "";
  return "its process is gone";
}

std::string holder_of(const Found& found) {
  const Json other = Json::parse(found.text, nullptr, false);
  std::string holder = fmt::format("process {} on {}", process_of(other), text_of(other, "host"));
  if (!text_of(other, "job").empty()) holder += " (job " + text_of(other, "job") + ")";
  return holder;
}

}  // namespace

struct RunLease::Impl {
  std::filesystem::path path;
  LeaseTimes times;
  int descriptor = -1;
  std::mutex mutex;
  std::condition_variable wake;
  bool stopping = false;
  std::thread heart;

  void take(const std::filesystem::path& temporary, const Json& self, const Log& log);
  bool set_aside(const Found& found);
  bool is_held() const;
  void start_heart();
  void beat();
};

// The stale lease leaves its name by rename: of two jobs that see it, one finds another text in
// what it moved, and puts it back.
bool RunLease::Impl::set_aside(const Found& found) {
  const std::string aside = fmt::format("{}.{}.{}.stale", path.string(), host_name(), getpid());
  if (::rename(path.c_str(), aside.c_str()) != 0) return false;
  const auto moved = look_at(aside, nanoseconds(0));
  const bool same = moved && moved->text == found.text;
  // Where this fails, somebody already has a new lease under the name.
  [[maybe_unused]] const int put_back = same ? 0 : ::link(aside.c_str(), path.c_str());
  ::unlink(aside.c_str());
  return same;
}

void RunLease::Impl::take(const std::filesystem::path& temporary, const Json& self,
                          const Log& log) {
  constexpr int kTries = 5;
  struct stat mine {};
  require(fstat(descriptor, &mine) == 0, ExitCode::io, "cannot look at {}: {}", temporary.string(),
          io::system_reason(errno));
  for (int i = 0; i < kTries; ++i) {
    if (::link(temporary.c_str(), path.c_str()) == 0) return;
    require(errno == EEXIST, ExitCode::io, "cannot make {}: {}", path.string(),
            io::system_reason(errno));
    const std::optional<Found> found = look_at(path, time_of(mine.st_mtim));
    if (!found) continue;
    const std::string death = death_of(*found, self, times);
    require(
        !death.empty(), ExitCode::io,
        "run directory {} is in use by {}, whose last heartbeat is {} s old ({}); stop that job "
        "or choose another run.directory",
        path.parent_path().string(), holder_of(*found),
        std::chrono::duration_cast<std::chrono::seconds>(found->age).count(), path.string());
    if (set_aside(*found)) log.info("took over the lease of {}: {}", holder_of(*found), death);
  }
  fail(ExitCode::io, "cannot get the lease {}: other jobs keep taking it", path.string());
}

bool RunLease::Impl::is_held() const {
  struct stat here {
  }, mine{};
  return ::stat(path.c_str(), &here) == 0 && ::fstat(descriptor, &mine) == 0 &&
         here.st_ino == mine.st_ino && here.st_dev == mine.st_dev;
}

void RunLease::Impl::beat() {
  std::unique_lock lock(mutex);
  while (!wake.wait_for(lock, times.heartbeat, [this] { return stopping; }))
    ::futimens(descriptor, nullptr);
}

void RunLease::Impl::start_heart() {
  heart = io::plain_thread([this] { beat(); });
}

RunLease::RunLease(const std::filesystem::path& run_directory, const Log& log, LeaseTimes times)
    : impl_(std::make_unique<Impl>()) {
  std::error_code error;
  std::filesystem::create_directories(run_directory, error);
  require(!error, ExitCode::io, "cannot make run directory {}: {}", run_directory.string(),
          error.message());
  impl_->path = run_directory / "lease.json";
  impl_->times = times;
  const Json self = own_identity();
  const std::filesystem::path temporary =
      fmt::format("{}.{}.{}.tmp", impl_->path.string(), host_name(), getpid());
  io::remove_file(temporary);
  io::PosixFile file = io::PosixFile::create(temporary);
  const std::string text = self.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const auto failure = io::attempt([&] {
    file.write_at(std::as_bytes(std::span(text)), 0);
    impl_->descriptor = ::fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0);
    impl_->take(temporary, self, log);
  });
  ::unlink(temporary.c_str());
  if (failure) {
    ::close(impl_->descriptor);
    throw Error(failure->code, failure->text);
  }
  impl_->start_heart();
}

RunLease::~RunLease() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->wake.notify_all();
  impl_->heart.join();
  if (impl_->is_held()) ::unlink(impl_->path.c_str());
  ::close(impl_->descriptor);
}

void RunLease::require_held() const {
  require(
      impl_->is_held(), ExitCode::io,
      "this job lost its lease {}: it gave no heartbeat for so long that another job took the run "
      "directory over",
      impl_->path.string());
}

const std::filesystem::path& RunLease::path() const {
  return impl_->path;
}

std::unique_ptr<RunLease> take_run_lease(const Communicator& world,
                                         const std::filesystem::path& run_directory, const Log& log,
                                         LeaseTimes times) {
  std::unique_ptr<RunLease> lease;
  io::throw_first(world, io::attempt([&] {
                    if (world.rank() == 0)
                      lease = std::make_unique<RunLease>(run_directory, log, times);
                  }));
  return lease;
}

}  // namespace trireme
