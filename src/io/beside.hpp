// Small jobs done in order in a thread beside the caller's.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace trireme::io {

class Beside {
 public:
  Beside();
  ~Beside();  // leaves undone what has not begun
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  // A job over so many bytes, which must not throw. Small ones are done here and now, after those
  // that were started before: they are not worth the other thread.
  void start(size_t bytes, std::function<void()> job);
  // Waits until at most so many jobs are not done.
  void wait_for_all_but(size_t jobs);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;  // the first one is being done
  bool ends_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace trireme::io
