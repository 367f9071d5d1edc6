#include "support/run_background.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace trireme::test {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Value of a line "NAME:\tVALUE" of /proc/PROCESS/status.
std::string status_of(const std::string& process, const std::string& name) {
  std::ifstream file("/proc/" + process + "/status");
  std::string line;
  while (std::getline(file, line))
    if (line.starts_with(name + ":"))
      return line.substr(line.find_first_not_of(" \t", name.size() + 1));
  return "";
}

int rank_of(const std::string& process) {
  const std::string variables = file_bytes("/proc/" + process + "/environ");
  const std::string name = "OMPI_COMM_WORLD_RANK=";
  const size_t at = variables.find(name);
  return at == std::string::npos ? -1 : std::atoi(variables.c_str() + at + name.size());
}

}  // namespace

bool is_running(pid_t process) {
  const std::string state = status_of(std::to_string(process), "State");
  return !state.empty() && state[0] != 'Z' && state[0] != 'X';
}

BackgroundRun::BackgroundRun(int ranks, const std::string& words, const std::filesystem::path& log)
    : count_(ranks), log_(log) {
  const std::string command = "exec env " + launch_command(ranks, words);
  launcher_ = ::fork();
  if (launcher_ < 0) throw std::runtime_error("cannot fork");
  if (launcher_ > 0) return;
  ::setpgid(0, 0);
  const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::dup2(file, STDOUT_FILENO);
  ::dup2(file, STDERR_FILENO);
  ::execl("/bin/bash", "bash", "-c", command.c_str(), nullptr);
  ::_exit(127);
}

BackgroundRun::~BackgroundRun() {
  if (!ended()) kill_all();
  while (!ended_) ended();
}

std::map<int, pid_t> BackgroundRun::ranks() const {
  std::map<int, pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string process = entry.path().filename().string();
    if (process.find_first_not_of("0123456789") != std::string::npos) continue;
    if (status_of(process, "PPid") != std::to_string(launcher_)) continue;
    const int rank = rank_of(process);
    if (rank >= 0) found[rank] = std::atoi(process.c_str());
  }
  return found;
}

std::string BackgroundRun::output() const {
  return file_bytes(log_);
}

bool BackgroundRun::ended() {
  if (!ended_) ended_ = ::waitpid(launcher_, &status_, WNOHANG) == launcher_;
  if (!ended_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return ended_;
}

void BackgroundRun::kill_all() const {
  for (const auto& [rank, process] : ranks()) ::kill(process, SIGKILL);
  ::kill(launcher_, SIGKILL);
}

ProgramResult BackgroundRun::wait(double limit_seconds) {
  const auto start = Clock::now();
  while (!ended() && seconds_since(start) < limit_seconds) {
  }
  ProgramResult result;
  result.seconds = seconds_since(start);
  result.output = output();
  if (ended_)
    result.exit_code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  else
    kill_all();
  if (!ended_) result.exit_code = 124;
  return result;
}

bool BackgroundRun::wait_until(const std::function<bool()>& condition, double limit_seconds) {
  const auto start = Clock::now();
  while (!condition()) {
    if (ended() || seconds_since(start) > limit_seconds) return condition();
  }
  return true;
}

bool BackgroundRun::wait_until_ranks_listen() {
  return wait_until([this] {
    const std::map<int, pid_t> processes = ranks();
    for (const auto& [rank, process] : processes) {
      const std::string caught = status_of(std::to_string(process), "SigCgt");
      const unsigned long long mask = std::strtoull(caught.c_str(), nullptr, 16);
      if ((mask >> (SIGUSR1 - 1) & 1) == 0) return false;
    }
    return static_cast<int>(processes.size()) == count_;
  });
}

bool BackgroundRun::wait_for_step(const std::filesystem::path& run_directory, int64_t step) {
  const std::string wanted = fmt::format("{{\"step\":{},", step);
  return wait_until([&] {
    return file_bytes(run_directory / "metrics.jsonl").find(wanted) != std::string::npos;
  });
}

}  // namespace trireme::test
