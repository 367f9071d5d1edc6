// RANKS 1 2 3 4
// Several operations in flight at once: order of completion, progress, and waits that cross.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "device/cpu/stream_state.hpp"
#include "support/rank_test.hpp"
#include "trireme/comm/communicator.hpp"

namespace trireme::test {

namespace {

constexpr int64_t kCount = 300007;  // 1.2 MB: two steps, rendezvous protocol

struct Values {
  std::vector<float> data;
  explicit Values(float value, int64_t count = kCount) : data(static_cast<size_t>(count), value) {}
  TensorView view() {
    return {
        reinterpret_cast<std::byte*>(data.data()), {static_cast<int64_t>(data.size())}, DType::f32};
  }
  void expect(float value) const {
    for (size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], value) << "element " << i;
  }
};

float rank_sum() {
  return static_cast<float>(world().size() * (world().size() + 1) / 2);
}
float own() {
  return static_cast<float>(world().rank() + 1);
}

// Another group of the same ranks, as tp and dp may be.
Communicator second_group() {
  Communicator group = world().split(0, -world().rank(), "second");
  group.connect(device());
  return group;
}

}  // namespace

TEST(Overlap, CommunicationStaysPendingUntilTheStreamIsWaitedFor) {
  if (world().size() == 1) GTEST_SKIP() << "a group of one is never pending";
  Stream& stream = device().communication();
  Values a(own());
  world().barrier();
  world().all_reduce(stream, a.view());
  Event event;
  stream.record(event);
  device().compute().wait(event);
  EXPECT_TRUE(stream.state().idle());
  a.expect(rank_sum());
}

TEST(Overlap, BucketsInFlightCompleteInAnyOrderOfSteps) {
  Stream& stream = device().communication();
  std::vector<Values> buckets;
  for (int b = 0; b < 5; ++b) buckets.emplace_back(own() + static_cast<float>(10 * b));
  for (Values& bucket : buckets) {
    world().all_reduce(stream, bucket.view());
    // Ranks are at different steps when the next bucket starts.
    for (int i = 0; i < 3 * world().rank(); ++i) world().progress();
  }
  stream.synchronize();
  for (int b = 0; b < 5; ++b)
    buckets[static_cast<size_t>(b)].expect(rank_sum() +
                                           static_cast<float>(10 * b * world().size()));
}

TEST(Overlap, AnOperationOnTheSameMemoryWaitsForTheOneBefore) {
  Stream& stream = device().communication();
  const int64_t n = world().size();
  Values whole(own(), n * 50021);
  const TensorView mine = whole.view().range(world().rank() * 50021, (world().rank() + 1) * 50021);
  world().reduce_scatter(stream, whole.view(), mine);
  world().all_gather(stream, mine, whole.view());
  world().all_reduce(stream, whole.view());
  stream.synchronize();
  whole.expect(rank_sum() * static_cast<float>(n));
}

// Rank 0 waits for `a` first, the others for `b` first: each needs the later steps of an operation
// that its peer is not waiting for.
TEST(Overlap, CrossedWaitsDoNotDeadlock) {
  const Communicator second = second_group();
  Stream& one = device().communication();
  Stream& two = device().copy();
  Values a(own()), b(2 * own());
  world().all_reduce(one, a.view());
  second.all_reduce(two, b.view());
  Stream& first = world().rank() == 0 ? one : two;
  Stream& last = world().rank() == 0 ? two : one;
  first.synchronize();
  world().barrier();
  last.synchronize();
  a.expect(rank_sum());
  b.expect(2 * rank_sum());
}

TEST(Overlap, ControlPlaneMovesPendingWorkOn) {
  Stream& stream = device().communication();
  Values a(own());
  world().all_reduce(stream, a.view());
  if (world().rank() == 0) stream.synchronize();
  EXPECT_EQ(world().sum(int64_t{1}), world().size());
  if (world().rank() != 0) stream.synchronize();
  a.expect(rank_sum());
}

TEST(Overlap, ProgressCompletesWorkWithoutAWait) {
  Stream& stream = device().communication();
  Values a(own());
  world().all_reduce(stream, a.view());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!stream.state().progress() && std::chrono::steady_clock::now() < end) world().progress();
  EXPECT_TRUE(stream.state().idle());
  a.expect(rank_sum());
  world().barrier();
}

TEST(Overlap, ComputeStreamCompletesBeforeTheCallReturns) {
  Values a(own());
  world().all_reduce(device().compute(), a.view());
  EXPECT_TRUE(device().compute().state().idle());
  a.expect(rank_sum());
}

TEST(Overlap, ALaterReceiveMayBePostedBeforeTheEarlierSendOfThePeer) {
  if (world().size() < 2) GTEST_SKIP() << "needs two ranks";
  Communicator pair = world().split(world().rank() < 2 ? 0 : -1, world().rank(), "pair");
  pair.connect(device());
  if (pair.size() == 1) return;
  Stream& up = device().new_stream("up");
  Stream& down = device().new_stream("down");
  Communicator back = pair.split(0, pair.rank(), "back");
  back.connect(device());
  const int peer = 1 - pair.rank();
  Values sent(own()), received(-1.0f), returned(-1.0f);
  const bool low = pair.rank() == 0;
  const std::vector<Transfer> wait_return{{Transfer::Direction::receive, peer, returned.view()}};
  const std::vector<Transfer> go{{Transfer::Direction::send, peer, sent.view()}};
  const std::vector<Transfer> come{{Transfer::Direction::receive, peer, received.view()}};
  if (low) {
    back.exchange(down, wait_return);
    pair.exchange(up, go);
  } else {
    pair.exchange(up, come);
    up.synchronize();
    back.exchange(down, go);
  }
  up.synchronize();
  down.synchronize();
  low ? returned.expect(2.0f) : received.expect(1.0f);
}

TEST(Overlap, NotConnectedOrMismatchedIsNamed) {
  const Communicator bare = world().split(0, world().rank(), "bare");
  Values a(1.0f, 12);
  const auto code_of = [](auto&& call) {
    try {
      call();
    } catch (const Error& e) {
      return e.code();
    }
    return ExitCode::ok;
  };
  Stream& stream = device().compute();
  const int64_t n = world().size();
  if (n > 1) {
    EXPECT_EQ(code_of([&] { bare.all_reduce(stream, a.view()); }), ExitCode::internal);
    EXPECT_EQ(code_of([&] { world().all_gather(stream, a.view(), a.view()); }), ExitCode::internal);
  }
  TensorView integers = a.view();
  integers.dtype = DType::i32;
  EXPECT_EQ(code_of([&] { world().all_reduce(stream, integers); }), ExitCode::internal);
  const std::vector<Transfer> lost{{Transfer::Direction::send, static_cast<int>(n), a.view()}};
  EXPECT_EQ(code_of([&] { world().exchange(stream, lost); }), ExitCode::internal);
  EXPECT_EQ(code_of([&] { world().broadcast(stream, a.view(), -1); }), ExitCode::internal);
  EXPECT_EQ(code_of([&] { world().broadcast("text", static_cast<int>(n)); }), ExitCode::internal);
}

}  // namespace trireme::test
