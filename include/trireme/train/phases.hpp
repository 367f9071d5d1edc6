// Named phases of a step, timed on the host: they feed the status line, the bench and the watchdog.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

class Watchdog;

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Phases {
 public:
  struct Line {
    std::string name;
    double seconds = 0;
    int64_t count = 0;
  };

  // Times its own lifetime.
  class Scope {
   public:
    Scope(Phases& phases, size_t line)
        : phases_(phases), line_(line), start_(std::chrono::steady_clock::now()) {}
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Phases& phases_;
    size_t line_;
    std::chrono::steady_clock::time_point start_;
  };

  // `watchdog` may be null; it hears which phase begins.
  explicit Phases(Watchdog* watchdog = nullptr) : watchdog_(watchdog) {}
  [[nodiscard]] Scope enter(std::string_view name);
  const std::vector<Line>& lines() const { return lines_; }
  double seconds(std::string_view name) const;
  void reset();
  // From now on every phase ends only when `wait` has returned: with a wait for the device, its
  // work counts in the phase that asked for it, and nothing overlaps any more. Empty: off.
  void wait_at_ends(std::function<void()> wait) { wait_ = std::move(wait); }

 private:
  Watchdog* watchdog_;
  std::vector<Line> lines_;
  std::function<void()> wait_;
};

}  // namespace trireme
