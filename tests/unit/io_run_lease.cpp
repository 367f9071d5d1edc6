// The lease: one holder, refused at once, dead holders do not block.
#include "trireme/io/run_lease.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <thread>

#include "support/checkpoint_bytes.hpp"

namespace trireme::test {
namespace {

using std::chrono::milliseconds;

const Log& quiet() {
  static const Log log(1, LogLevel::error);
  return log;
}

// Another process that holds the lease of `directory` until it is killed.
class OtherHolder {
 public:
  explicit OtherHolder(const std::filesystem::path& directory, LeaseTimes times = {}) {
    int ready[2] = {-1, -1};
    EXPECT_EQ(::pipe(ready), 0);
    process_ = ::fork();
    if (process_ == 0) {
      const RunLease lease(directory, quiet(), times);
      const ssize_t told = ::write(ready[1], "x", 1);
      while (told == 1) ::pause();
      ::_exit(0);
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~OtherHolder() {
    kill();
    int status = 0;
    ::waitpid(process_, &status, 0);
  }
  void kill() const { ::kill(process_, SIGKILL); }
  // Dead, but not buried: /proc still knows it.
  void wait_until_dead() const {
    siginfo_t info;
    ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOWAIT);
  }
  void stop() const { ::kill(process_, SIGSTOP); }

 private:
  pid_t process_ = -1;
};

std::string refusal(const std::filesystem::path& directory, LeaseTimes times = {}) {
  return error_text(ExitCode::io, [&] { const RunLease lease(directory, quiet(), times); });
}

TEST(RunLease, RefusesASecondHolderAtOnceAndComesBackWhenReleased) {
  const ScratchDirectory directory;
  const auto run = directory.path() / "new" / "run";
  {
    const RunLease lease(run, quiet());
    lease.require_held();
    const auto start = std::chrono::steady_clock::now();
    const std::string text = refusal(run);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    EXPECT_NE(text.find("is in use by process"), std::string::npos) << text;
    EXPECT_NE(text.find(fmt::format("{}", getpid())), std::string::npos) << text;
    lease.require_held();
  }
  EXPECT_TRUE(std::filesystem::is_empty(run));
  const RunLease again(run, quiet());
  again.require_held();
}

TEST(RunLease, OfAnotherLivingProcessIsRespected) {
  const ScratchDirectory directory;
  const OtherHolder other(directory.path());
  EXPECT_NE(refusal(directory.path()).find("is in use by process"), std::string::npos);
}

TEST(RunLease, OfAKilledProcessIsTakenOver) {
  const ScratchDirectory directory;
  const OtherHolder other(directory.path());
  other.kill();
  other.wait_until_dead();
  const RunLease lease(directory.path(), quiet());
  lease.require_held();
  // Nothing but the lease itself is left in the directory.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(RunLease, WithoutHeartbeatIsTakenOverAndTheLoserNotices) {
  const ScratchDirectory directory;
  const LeaseTimes times{milliseconds(50), milliseconds(400)};
  const OtherHolder other(directory.path(), times);
  // Its heart beats: older than the limit, and still held.
  std::this_thread::sleep_for(milliseconds(700));
  EXPECT_NE(refusal(directory.path(), times).find("is in use"), std::string::npos);
  other.stop();
  std::this_thread::sleep_for(milliseconds(700));
  const RunLease lease(directory.path(), quiet(), times);
  lease.require_held();
}

TEST(RunLease, ALostLeaseIsNoticedAndNotTakenFromItsNewHolder) {
  const ScratchDirectory directory;
  auto loser = std::make_unique<RunLease>(directory.path(), quiet());
  std::filesystem::remove(loser->path());
  const RunLease winner(directory.path(), quiet());
  const std::string text = error_text(ExitCode::io, [&] { loser->require_held(); });
  EXPECT_NE(text.find("lost its lease"), std::string::npos) << text;
  loser.reset();
  winner.require_held();
}

TEST(RunLease, AnUnreadableLeaseCountsByItsAge) {
  const ScratchDirectory directory;
  write_bytes(directory.path() / "lease.json", "{\"process\": \"x\", [");
  EXPECT_NE(refusal(directory.path()).find("is in use"), std::string::npos);
  std::this_thread::sleep_for(milliseconds(300));
  const RunLease lease(directory.path(), quiet(), {milliseconds(50), milliseconds(200)});
  lease.require_held();
}

// A process number that was given out again does not keep a lease alive.
TEST(RunLease, AReusedProcessNumberIsAnotherProcess) {
  const ScratchDirectory directory;
  std::string text;
  {
    const RunLease lease(directory.path(), quiet());
    text = read_bytes(lease.path());
  }
  const size_t place = text.find("\"started\":\"") + 11;
  text[place] = text[place] == '1' ? '2' : '1';
  write_bytes(directory.path() / "lease.json", text);
  const RunLease lease(directory.path(), quiet());
  lease.require_held();
}

TEST(RunLease, ADirectoryThatCannotBeMadeIsAnError) {
  const ScratchDirectory directory;
  write_bytes(directory.path() / "file", "x");
  EXPECT_NE(refusal(directory.path() / "file" / "run").find("cannot make run directory"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::test
