// Threads that work on numbered jobs and give the results back in the order of the jobs.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace trireme {

// `Result` is what a job gives. With one thread jobs run where they are submitted. All members are
// for one thread. What a job throws is thrown again where its result is taken.
template <class Result>
class OrderedWorkers {
 public:
  using Job = std::function<Result(int worker)>;

  explicit OrderedWorkers(int threads) {
    for (int i = 0; threads > 1 && i < threads; ++i) threads_.emplace_back([this, i] { work(i); });
  }
  ~OrderedWorkers() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      queue_.clear();
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  OrderedWorkers(const OrderedWorkers&) = delete;
  OrderedWorkers& operator=(const OrderedWorkers&) = delete;

  // Hands on a job; while too many wait, takes the oldest results with take(Result).
  template <class Take>
  void submit(Job job, Take&& take) {
    std::packaged_task<Result(int)> task(std::move(job));
    results_.push_back(task.get_future());
    if (threads_.empty()) {
      task(0);
      return drain(take);
    }
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(task));
    }
    wake_.notify_one();
    while (results_.size() > 3 * threads_.size()) take_first(take);
  }

  // Takes all results that are outstanding.
  template <class Take>
  void drain(Take&& take) {
    while (!results_.empty()) take_first(take);
  }

 private:
  template <class Take>
  void take_first(Take&& take) {
    std::future<Result> first = std::move(results_.front());
    results_.pop_front();
    take(first.get());
  }

  void work(int worker) {
    while (true) {
      std::packaged_task<Result(int)> task;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        if (stopping_) return;
        task = std::move(queue_.front());
        queue_.pop_front();
      }
      task(worker);
    }
  }

  std::deque<std::future<Result>> results_;
  std::deque<std::packaged_task<Result(int)>> queue_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace trireme
