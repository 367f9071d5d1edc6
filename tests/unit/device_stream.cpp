// Streams and events of the CPU twin: what a wait completes, what a conflict completes, copies.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "device/cpu/stream_state.hpp"

namespace trireme {
namespace {

// Pending operations that note their name when they finish, on memory of their own.
class Streams : public testing::Test {
 protected:
  MemoryRange range(size_t first, size_t bytes, bool written) {
    return {memory_.data() + first, bytes, written};
  }
  void push(Stream& stream, const std::string& name, std::vector<MemoryRange> ranges) {
    stream.state().finish_conflicting(ranges);
    stream.state().push({[this, name] { done_ += name; },
                         [this, name] {
                           if (ready_.find(name) == std::string::npos) return false;
                           done_ += name;
                           return true;
                         },
                         std::move(ranges)});
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(100);
  Device device_{DeviceOptions{.threads = 1}};
  std::string done_;
  std::string ready_;
};

TEST_F(Streams, WaitCompletesUpToTheMarkInOrder) {
  Stream& communication = device_.communication();
  push(communication, "a", {range(0, 10, true)});
  push(communication, "b", {range(10, 10, true)});
  Event event;
  communication.record(event);
  push(communication, "c", {range(20, 10, true)});
  EXPECT_EQ(done_, "");
  device_.compute().wait(event);
  EXPECT_EQ(done_, "ab");
  device_.compute().wait(event);
  EXPECT_EQ(done_, "ab");
  communication.synchronize();
  EXPECT_EQ(done_, "abc");
}

TEST_F(Streams, TimerCountsWhatAWaitCosts) {
  Stream& communication = device_.communication();
  const std::chrono::milliseconds pause{3};
  const auto wait_for_slow = [&](StreamTimer& timer) {
    communication.state().push(
        {[pause] { std::this_thread::sleep_for(pause); }, [] { return false; }, {}});
    Event event;
    communication.record(event);
    timer.wait(device_.compute(), event);
  };
  StreamTimer timer;
  wait_for_slow(timer);
  EXPECT_EQ(timer.seconds(), 0) << "it is off";
  timer.switch_on(true);
  wait_for_slow(timer);
  wait_for_slow(timer);
  EXPECT_GE(timer.seconds(), 6e-3);
  const double before = timer.seconds();
  timer.start(communication);
  timer.stop(communication);
  EXPECT_LT(timer.seconds(), before + 2e-3);
  timer.switch_on(true);
  EXPECT_EQ(timer.seconds(), 0) << "from zero again";
}

TEST_F(Streams, RecordingAgainMovesTheMark) {
  Stream& stream = device_.new_stream("edge");
  Event event;
  push(stream, "a", {range(0, 1, true)});
  stream.record(event);
  push(stream, "b", {range(1, 1, true)});
  stream.record(event);
  device_.compute().wait(event);
  EXPECT_EQ(done_, "ab");
}

TEST_F(Streams, EmptyEventsAreComplete) {
  push(device_.communication(), "a", {range(0, 1, true)});
  device_.compute().wait(Event());
  EXPECT_EQ(done_, "");
}

TEST_F(Streams, OnlyConflictingMemorySerialises) {
  Stream& stream = device_.communication();
  push(stream, "a", {range(0, 10, true)});
  push(stream, "b", {range(50, 10, false)});
  push(stream, "c", {range(9, 1, false), range(20, 5, true)});
  EXPECT_EQ(done_, "a");
  push(stream, "d", {range(50, 10, false)});
  EXPECT_EQ(done_, "a");
  push(stream, "e", {range(59, 3, true)});
  EXPECT_EQ(done_, "abd");
  stream.synchronize();
  EXPECT_EQ(done_, "abdce");
}

TEST_F(Streams, TouchingRangesAndEmptyRangesDoNotConflict) {
  EXPECT_FALSE(conflict(range(0, 10, true), range(10, 10, true)));
  EXPECT_TRUE(conflict(range(0, 11, true), range(10, 10, false)));
  EXPECT_TRUE(conflict(range(5, 1, false), range(0, 10, true)));
  EXPECT_FALSE(conflict(range(0, 10, false), range(0, 10, false)));
  EXPECT_FALSE(conflict(range(5, 0, true), range(0, 10, true)));
}

TEST_F(Streams, PushingOnMemoryInUseIsAnError) {
  Stream::State& state = device_.communication().state();
  push(device_.communication(), "a", {range(0, 10, true)});
  EXPECT_THROW(state.push({[] {}, [] { return true; }, {range(5, 1, false)}}), Error);
}

TEST_F(Streams, ProgressDropsWhatIsDone) {
  Stream& stream = device_.communication();
  push(stream, "a", {range(0, 1, true)});
  push(stream, "b", {range(1, 1, true)});
  ready_ = "b";
  EXPECT_FALSE(stream.state().progress());
  EXPECT_EQ(done_, "b");
  ready_ = "ab";
  EXPECT_TRUE(stream.state().progress());
  EXPECT_TRUE(stream.state().idle());
  stream.synchronize();
  EXPECT_EQ(done_, "ba");
}

TEST_F(Streams, AnOperationThatThrowsIsNoLongerPending) {
  Stream& stream = device_.communication();
  stream.state().push(
      {[] { fail(ExitCode::peer, "rank {} is gone", 3); }, [] { return false; }, {}});
  EXPECT_THROW(stream.synchronize(), Error);
  EXPECT_NO_THROW(stream.synchronize());
}

TEST_F(Streams, DestructionDoesNotWait) {
  bool finished = false;
  {
    Device device{DeviceOptions{.threads = 1}};
    device.compute().state().push({[&] { finished = true; }, [] { return false; }, {}});
  }
  EXPECT_FALSE(finished);
}

TEST_F(Streams, ReferencesStayValidWhenStreamsAreAdded) {
  Stream* first = &device_.compute();
  for (int i = 0; i < 100; ++i) device_.new_stream(fmt::format("s{}", i));
  EXPECT_EQ(first, &device_.compute());
  EXPECT_NE(&device_.compute(), &device_.communication());
  EXPECT_NE(&device_.copy(), &device_.communication());
}

TEST_F(Streams, CopiesAndFills) {
  const int64_t count = 3 * (1 << 20) + 7;  // several pieces and an odd rest
  Arena arena = Arena::real(static_cast<size_t>(2 * (count * 4 + 256)));
  const TensorView a = arena.take({count}, DType::i32, "a");
  const TensorView b = arena.take({count}, DType::i32, "b");
  std::vector<int32_t> host(static_cast<size_t>(count));
  std::iota(host.begin(), host.end(), 5);
  copy_to_device(device_.compute(), std::as_bytes(std::span(host)), a);
  copy(device_.compute(), a, b);
  std::vector<int32_t> back(host.size());
  copy_to_host(device_.compute(), b, std::as_writable_bytes(std::span(back)));
  EXPECT_EQ(back, host);
  fill_zero(device_.compute(), b.range(1, count));
  EXPECT_EQ(b.host<int32_t>()[0], 5);
  for (const int32_t value : b.range(1, count).host<int32_t>()) ASSERT_EQ(value, 0);
  EXPECT_THROW(copy(device_.compute(), a, b.range(0, 5)), Error);
  EXPECT_THROW(copy_to_device(device_.compute(), {}, a), Error);
}

}  // namespace
}  // namespace trireme
