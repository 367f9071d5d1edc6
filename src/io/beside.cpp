#include "io/beside.hpp"

#include <utility>

#include "io/plain_thread.hpp"

namespace trireme::io {

Beside::Beside() : thread_(plain_thread([this] { run(); })) {}

Beside::~Beside() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Beside::start(size_t bytes, std::function<void()> job) {
  constexpr size_t kWorthIt = size_t{256} << 10;
  if (bytes < kWorthIt) {
    wait_for_all_but(0);
    return job();
  }
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void Beside::wait_for_all_but(size_t jobs) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.size() <= jobs; });
}

void Beside::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !jobs_.empty(); });
    if (ends_) return;
    const std::function<void()>& job = jobs_.front();  // stays where it is while others are added
    lock.unlock();
    job();
    lock.lock();
    jobs_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace trireme::io
