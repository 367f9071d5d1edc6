// Stands between this program and the C library's file calls: records them, or lets one of them
// fail.
//
// Included by one source of a test program: its definitions of pwrite, fsync, rename and the like
// take the place of the library's for everything linked into the program. Only paths and
// descriptors below a watched directory are touched. Calls of all threads are counted together.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace trireme::test {

enum class Call : uint8_t { create, open, reserve, truncate, write, sync, close, rename, unlink };
inline constexpr Call kCalls[] = {Call::create, Call::open,  Call::reserve, Call::write,
                                  Call::sync,   Call::close, Call::rename,  Call::unlink};

// One call that was made, in the order of the machine's monotonic clock.
struct IoRecord {
  Call call = Call::open;
  int64_t begin = 0, end = 0;  // ns
  std::string path, other;     // names in the watched directory; "" is the directory itself
  int64_t offset = 0, size = 0;
  std::string bytes;
};

// Makes the `at`-th call (from 0) of one kind fail. errno 0: a short write of half the bytes.
struct Fault {
  Call call = Call::write;
  int64_t at = -1;
  int error = 0;
  int times = 1;  // calls in a row
};

class Interposer {
 public:
  static Interposer& instance() {
    static Interposer one;
    return one;
  }
  void watch(const std::string& directory, bool records) {
    const std::lock_guard lock(mutex_);
    directory_ = directory;
    records_ = records;
    seen_.clear();
    counts_.clear();
    fault_ = {};
    hits_ = 0;
  }
  void stop() { watch("", false); }
  void inject(const Fault& fault) {
    const std::lock_guard lock(mutex_);
    fault_ = fault;
    hits_ = 0;
    counts_.clear();
  }
  int64_t hits() const { return hits_; }
  std::map<Call, int64_t> counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
  }
  std::vector<IoRecord> records() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

  // The name below the watched directory; nothing for other paths.
  bool name_of(const std::string& path, std::string& name) const {
    if (directory_.empty() || !path.starts_with(directory_)) return false;
    if (path.size() > directory_.size() && path[directory_.size()] != '/') return false;
    name = path.size() == directory_.size() ? "" : path.substr(directory_.size() + 1);
    return true;
  }
  bool name_of(int descriptor, std::string& name) const {
    if (directory_.empty()) return false;
    char path[PATH_MAX] = {};
    char link[64];
    std::snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
    return ::readlink(link, path, sizeof(path) - 1) > 0 && name_of(std::string(path), name);
  }

  // Whether this call fails, and how.
  bool fails(Call call, int& error) {
    const std::lock_guard lock(mutex_);
    const int64_t number = counts_[call]++;
    if (fault_.call != call || number < fault_.at || number >= fault_.at + fault_.times ||
        fault_.at < 0)
      return false;
    ++hits_;
    error = fault_.error;
    return true;
  }
  void record(IoRecord record) {
    const std::lock_guard lock(mutex_);
    if (records_) seen_.push_back(std::move(record));
  }

  static int64_t now() {
    timespec time = {};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
  }
  template <class Function>
  static Function* next(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
  }

 private:
  std::mutex mutex_;
  std::string directory_;
  bool records_ = false;
  std::vector<IoRecord> seen_;
  std::map<Call, int64_t> counts_;
  Fault fault_;
  int64_t hits_ = 0;
};

// Runs `real` unless the call is to fail, and records it.
template <class Result, class Real>
Result interpose(IoRecord record, Real&& real) {
  Interposer& all = Interposer::instance();
  int error = 0;
  if (all.fails(record.call, error)) {
    errno = error;
    return Result{-1};
  }
  record.begin = Interposer::now();
  const Result result = real();
  const int kept = errno;
  record.end = Interposer::now();
  if (result >= 0) all.record(std::move(record));
  errno = kept;
  return result;
}

}  // namespace trireme::test

extern "C" {

int open(const char* path, int flags, ...) {
  using trireme::test::Interposer;
  va_list rest;
  va_start(rest, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;
  va_end(rest);
  static auto* const real = Interposer::next<int(const char*, int, ...)>("open");
  trireme::test::IoRecord record;
  record.call = (flags & O_CREAT) != 0 ? trireme::test::Call::create : trireme::test::Call::open;
  if (!Interposer::instance().name_of(path, record.path)) return real(path, flags, mode);
  return trireme::test::interpose<int>(std::move(record), [&] { return real(path, flags, mode); });
}

ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  using trireme::test::Interposer;
  static auto* const real = Interposer::next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  Interposer& all = Interposer::instance();
  trireme::test::IoRecord record;
  record.call = trireme::test::Call::write;
  if (!all.name_of(file, record.path)) return real(file, bytes, count, offset);
  int error = 0;
  if (all.fails(record.call, error)) {
    if (error != 0) {
      errno = error;
      return -1;
    }
    count = count > 1 ? count / 2 : count;
  }
  record.offset = offset;
  record.begin = Interposer::now();
  const ssize_t done = real(file, bytes, count, offset);
  const int kept = errno;
  record.end = Interposer::now();
  if (done > 0) record.bytes.assign(static_cast<const char*>(bytes), static_cast<size_t>(done));
  if (done > 0) all.record(std::move(record));
  errno = kept;
  return done;
}

int fsync(int file) {
  using trireme::test::Interposer;
  static auto* const real = Interposer::next<int(int)>("fsync");
  trireme::test::IoRecord record;
  record.call = trireme::test::Call::sync;
  if (!Interposer::instance().name_of(file, record.path)) return real(file);
  return trireme::test::interpose<int>(std::move(record), [&] { return real(file); });
}

int fallocate(int file, int mode, off_t offset, off_t size) {
  using trireme::test::Interposer;
  static auto* const real = Interposer::next<int(int, int, off_t, off_t)>("fallocate");
  trireme::test::IoRecord record;
  record.call = trireme::test::Call::reserve;
  record.size = offset + size;
  if (!Interposer::instance().name_of(file, record.path)) return real(file, mode, offset, size);
  return trireme::test::interpose<int>(std::move(record),
                                       [&] { return real(file, mode, offset, size); });
}

int close(int file) {
  using trireme::test::Interposer;
  static auto* const real = Interposer::next<int(int)>("close");
  trireme::test::IoRecord record;
  record.call = trireme::test::Call::close;
  if (!Interposer::instance().name_of(file, record.path)) return real(file);
  int error = 0;
  const bool fails = Interposer::instance().fails(record.call, error);
  const int result = real(file);  // Linux closes the descriptor even where close reports an error
  if (!fails) return result;
  errno = error;
  return -1;
}

int rename(const char* from, const char* to) noexcept {
  using trireme::test::Interposer;
  static auto* const real = Interposer::next<int(const char*, const char*)>("rename");
  trireme::test::IoRecord record;
  record.call = trireme::test::Call::rename;
  if (!Interposer::instance().name_of(from, record.path) ||
      !Interposer::instance().name_of(to, record.other))
    return real(from, to);
  return trireme::test::interpose<int>(std::move(record), [&] { return real(from, to); });
}

int unlink(const char* path) noexcept {
  using trireme::test::Interposer;
  static auto* const real = Interposer::next<int(const char*)>("unlink");
  trireme::test::IoRecord record;
  record.call = trireme::test::Call::unlink;
  if (!Interposer::instance().name_of(path, record.path)) return real(path);
  return trireme::test::interpose<int>(std::move(record), [&] { return real(path); });
}

}  // extern "C"
