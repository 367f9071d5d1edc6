// RANKS 1 2 4
// The data plane on a GPU: every call against values worked out on the host. Ranks may share one
// GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "support/rank_test.hpp"

namespace trireme::test {

namespace {

// Small integers: sums of a few are exact in f32 and bf16.
float element(int rank, int64_t i) {
  return static_cast<float>((i * 7 + rank * 13) % 23 - 11);
}

class DeviceTensor {
 public:
  DeviceTensor(Shape shape, DType type)
      : buffer_(static_cast<size_t>(shape.elements()) * size_of(type), Memory::device),
        view_{buffer_.data(), shape, type} {
    std::vector<std::byte> poison(view_.bytes(), std::byte{0xFF});
    copy_to_device(stream(), poison, view_);
    stream().synchronize();
  }
  // Elements first, first + 1, ... of the pattern of `rank`.
  DeviceTensor(Shape shape, DType type, int rank, int64_t first = 0) : DeviceTensor(shape, type) {
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = element(rank, first + static_cast<int64_t>(i));
    write(values);
  }
  static Stream& stream() { return device().compute(); }
  const TensorView& view() const { return view_; }

  void write(const std::vector<float>& values) {
    std::vector<std::byte> bytes(view_.bytes());
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t half = to_bf16(values[i]);
      if (view_.dtype == DType::bf16)
        std::memcpy(bytes.data() + 2 * i, &half, 2);
      else
        std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    }
    copy_to_device(stream(), bytes, view_);
    stream().synchronize();
  }
  std::vector<float> read() const {
    std::vector<std::byte> bytes(view_.bytes());
    copy_to_host(stream(), view_, bytes);
    stream().synchronize();
    std::vector<float> values(static_cast<size_t>(view_.elements()));
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t half = 0;
      if (view_.dtype == DType::bf16) {
        std::memcpy(&half, bytes.data() + 2 * i, 2);
        values[i] = from_bf16(half);
      } else {
        std::memcpy(&values[i], bytes.data() + 4 * i, 4);
      }
    }
    return values;
  }

 private:
  Buffer buffer_;
  TensorView view_;
};

float sum_at(int64_t i) {
  float total = 0;
  for (int r = 0; r < world().size(); ++r) total += element(r, i);
  return total;
}

void expect_elements(const std::vector<float>& got, const std::function<float(int64_t)>& expected) {
  int64_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const float e = expected(static_cast<int64_t>(i));
    if (got[i] == e) continue;
    if (++wrong < 4) ADD_FAILURE() << "element " << i << " is " << got[i] << ", expected " << e;
  }
  EXPECT_EQ(wrong, 0);
}

constexpr int64_t kCounts[] = {1, 1000, 300007};

}  // namespace

TEST(NcclPlane, AllReduce) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const int64_t n : kCounts) {
      DeviceTensor sum({n}, type, world().rank()), most({n}, type, world().rank());
      world().all_reduce(DeviceTensor::stream(), sum.view());
      world().all_reduce(DeviceTensor::stream(), most.view(), Reduce::max);
      expect_elements(sum.read(), sum_at);
      expect_elements(most.read(), [](int64_t i) {
        float top = element(0, i);
        for (int r = 1; r < world().size(); ++r) top = std::max(top, element(r, i));
        return top;
      });
    }
}

TEST(NcclPlane, ReduceScatterAndGather) {
  const int rank = world().rank(), size = world().size();
  for (const DType type : {DType::f32, DType::bf16})
    for (const int64_t n : kCounts) {
      const DeviceTensor whole({size, n}, type, rank);
      const DeviceTensor mine({1, n}, type);
      world().reduce_scatter(DeviceTensor::stream(), whole.view(), mine.view());
      expect_elements(mine.read(), [&](int64_t i) { return sum_at(rank * n + i); });
      const DeviceTensor all({size, n}, type);
      world().all_gather(DeviceTensor::stream(), mine.view(), all.view());
      expect_elements(all.read(), sum_at);
    }
}

TEST(NcclPlane, InPlacePieces) {
  const int rank = world().rank(), size = world().size();
  const int64_t n = 4096;
  const DeviceTensor whole({size, n}, DType::f32, rank);
  const TensorView own = whole.view().rows(rank, rank + 1);
  world().reduce_scatter(DeviceTensor::stream(), whole.view(), own);
  world().all_gather(DeviceTensor::stream(), own, whole.view());
  expect_elements(whole.read(), sum_at);
}

TEST(NcclPlane, BroadcastFromEach) {
  for (int root = 0; root < world().size(); ++root) {
    const DeviceTensor x({777}, DType::f32, world().rank());
    world().broadcast(DeviceTensor::stream(), x.view(), root);
    expect_elements(x.read(), [&](int64_t i) { return element(root, i); });
  }
}

TEST(NcclPlane, ExchangeAroundTheRing) {
  const int rank = world().rank(), size = world().size();
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  const DeviceTensor out({50001}, DType::bf16, rank), in({50001}, DType::bf16);
  const std::vector<Transfer> transfers{{Transfer::Direction::send, next, out.view()},
                                        {Transfer::Direction::receive, previous, in.view()}};
  world().exchange(DeviceTensor::stream(), transfers);
  expect_elements(in.read(), [&](int64_t i) { return element(previous, i); });
}

TEST(NcclPlane, AllToAllUneven) {
  const int rank = world().rank(), size = world().size();
  // Rank s sends s + 1 + d rows to rank d, each row 5 wide and made from (s, d).
  std::vector<int64_t> send_rows, receive_rows;
  std::vector<float> values;
  int64_t sent = 0, received = 0;
  for (int peer = 0; peer < size; ++peer) {
    send_rows.push_back(rank + 1 + peer);
    receive_rows.push_back(peer + 1 + rank);
    sent += send_rows.back();
    received += receive_rows.back();
    for (int64_t i = 0; i < 5 * send_rows.back(); ++i)
      values.push_back(element(rank * size + peer, i));
  }
  DeviceTensor out({sent, 5}, DType::f32);
  out.write(values);
  const DeviceTensor in({received, 5}, DType::f32);
  world().all_to_all(DeviceTensor::stream(), out.view(), send_rows, in.view(), receive_rows);
  std::vector<float> expected;
  for (int peer = 0; peer < size; ++peer)
    for (int64_t i = 0; i < 5 * receive_rows[static_cast<size_t>(peer)]; ++i)
      expected.push_back(element(peer * size + rank, i));
  expect_elements(in.read(), [&](int64_t i) { return expected[static_cast<size_t>(i)]; });
}

// Two groups over the same ranks, each on a stream of its own, as the two directions of a pipeline
// edge.
TEST(NcclPlane, TwoGroupsOnTwoStreams) {
  const int rank = world().rank(), size = world().size();
  Communicator forward = world().split(0, rank, "forward");
  Communicator backward = world().split(0, rank, "backward");
  forward.connect(device());
  backward.connect(device());
  Stream& one = device().new_stream("forward");
  Stream& two = device().new_stream("backward");
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  for (int round = 0; round < 20; ++round) {
    const DeviceTensor a({40000}, DType::f32, rank, round), b({40000}, DType::f32, rank, round + 9);
    const DeviceTensor from_previous({40000}, DType::f32), from_next({40000}, DType::f32);
    const std::vector<Transfer> up{{Transfer::Direction::send, next, a.view()},
                                   {Transfer::Direction::receive, previous, from_previous.view()}};
    const std::vector<Transfer> down{{Transfer::Direction::send, previous, b.view()},
                                     {Transfer::Direction::receive, next, from_next.view()}};
    forward.exchange(one, up);
    backward.exchange(two, down);
    Event done_one, done_two;
    one.record(done_one);
    two.record(done_two);
    device().compute().wait(done_one);
    device().compute().wait(done_two);
    expect_elements(from_previous.read(), [&](int64_t i) { return element(previous, i + round); });
    expect_elements(from_next.read(), [&](int64_t i) { return element(next, i + round + 9); });
  }
}

// The two ends of a pipeline edge post receives before the sends that the other end is waiting for.
TEST(NcclPlane, ReceivesPostedEarly) {
  const int rank = world().rank();
  if (world().size() % 2 != 0) GTEST_SKIP() << "needs pairs of ranks";
  Communicator forward = world().split(rank / 2, rank, "activations");
  Communicator backward = world().split(rank / 2, rank, "gradients");
  forward.connect(device());
  backward.connect(device());
  Stream& up = device().new_stream("activations");
  Stream& down = device().new_stream("gradients");
  const bool first = rank % 2 == 0;
  const int64_t n = int64_t{1} << 20;
  const DeviceTensor a({n}, DType::f32, rank, 1), b({n}, DType::f32, rank, 2);
  const DeviceTensor c({n}, DType::f32), d({n}, DType::f32);
  const auto send = [&](const Communicator& group, Stream& stream, const DeviceTensor& x) {
    const Transfer transfer{Transfer::Direction::send, 1 - group.rank(), x.view()};
    group.exchange(stream, {&transfer, 1});
  };
  const auto receive = [&](const Communicator& group, Stream& stream, const DeviceTensor& x) {
    const Transfer transfer{Transfer::Direction::receive, 1 - group.rank(), x.view()};
    group.exchange(stream, {&transfer, 1});
  };
  if (first) {
    receive(backward, down, c);
    send(forward, up, a);
    send(forward, up, b);
  } else {
    receive(forward, up, c);
    receive(forward, up, d);
    send(backward, down, a);
  }
  up.synchronize();
  down.synchronize();
  const int peer = first ? rank + 1 : rank - 1;
  expect_elements(c.read(), [&](int64_t i) { return element(peer, i + 1); });
  if (!first) expect_elements(d.read(), [&](int64_t i) { return element(peer, i + 2); });
}

// In a group that is connected for pairs a call returns before the peer has made its own, between
// any two ranks: the host can go on to what the peer waits for.
TEST(NcclPlane, ExchangeIsIssuedBeforeThePeersIs) {
  const int rank = world().rank(), size = world().size();
  Communicator group = world().split(0, rank, "pairs");
  group.connect(device(), Links::pairs);
  const DeviceTensor out({1000}, DType::f32, rank), in({1000}, DType::f32);
  for (int from = 0; from < size; ++from)
    for (int to = 0; to < size; ++to) {
      if (from == to) continue;
      const Transfer receive{Transfer::Direction::receive, from, in.view()};
      const Transfer send{Transfer::Direction::send, to, out.view()};
      if (rank == to) group.exchange(DeviceTensor::stream(), {&receive, 1});
      world().barrier();
      if (rank == from) group.exchange(DeviceTensor::stream(), {&send, 1});
      DeviceTensor::stream().synchronize();
      if (rank == to) expect_elements(in.read(), [&](int64_t i) { return element(from, i); });
    }
}

}  // namespace trireme::test
