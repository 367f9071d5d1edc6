// RANKS 1 2 3 4
// Groups of ranks: control plane and data plane, on values where mistakes show.
#include "trireme/comm/communicator.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "comm/communicator_state.hpp"
#include "support/rank_test.hpp"

namespace trireme::test {

namespace {

constexpr int64_t k31 = int64_t{1} << 31;
constexpr int64_t k62 = int64_t{1} << 62;

// An element that depends on rank and index and is not exact in bf16 or after a few additions. Not
// inlined: its product must not be contracted with the sums that the tests form of it.
[[gnu::noinline]] float element(int rank, int64_t i) {
  const auto mixed = static_cast<float>((i * 7919 + rank * 104729) % 100003);
  return (mixed / 100003.0f - 0.3f) * (i % 3 == 0 ? 1000.0f : 1.0f);
}

TensorView view_of(std::vector<float>& values) {
  return {reinterpret_cast<std::byte*>(values.data()),
          {static_cast<int64_t>(values.size())},
          DType::f32};
}
TensorView view_of(std::vector<uint16_t>& values) {
  return {reinterpret_cast<std::byte*>(values.data()),
          {static_cast<int64_t>(values.size())},
          DType::bf16};
}

std::vector<float> values_of(int rank, int64_t count, int64_t first = 0) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = element(rank, first + i);
  return values;
}

// Sum in rank order in f32, as promised.
float sum_at(int64_t i) {
  float total = element(0, i);
  for (int r = 1; r < world().size(); ++r) total += element(r, i);
  return total;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <class T>
void expect_same_on_all_ranks(const std::vector<T>& values) {
  for (const std::string& other : world().gather_all(bytes_of(values)))
    EXPECT_TRUE(other == bytes_of(values));
}

// A group of all ranks with small limits, so that cutting shows at small sizes.
Communicator small_limits(CommLimits limits) {
  Communicator group = world().split(0, world().rank(), "small");
  group.state().limits = limits;
  group.connect(device());
  return group;
}

}  // namespace

TEST(ControlPlane, KnowsItsPlace) {
  EXPECT_EQ(world().size(), session().world().size());
  EXPECT_EQ(world().world_ranks()[static_cast<size_t>(world().rank())], session().world().rank());
  EXPECT_EQ(session().nodes(), 1);
  EXPECT_EQ(session().node_ranks(), world().size());
  EXPECT_FALSE(session().host().empty());
  EXPECT_NE(session().library_version().find_first_of("0123456789"), std::string::npos);
}

TEST(ControlPlane, ReducesSignedValuesOnBothSidesOfTheWordSizes) {
  const int r = world().rank(), n = world().size();
  for (int64_t base : {int64_t{0}, k31 - 1, k31, k62 - 8, -k31, -k31 - 1, -k62}) {
    EXPECT_EQ(world().max(base + r), base + n - 1);
    EXPECT_EQ(world().min(base - r), base - n + 1);
  }
  EXPECT_EQ(world().max(r == 0 ? k62 : int64_t{-1}), k62);
  EXPECT_EQ(world().min(r == n - 1 ? -k62 : k62), -k62);
  EXPECT_EQ(world().max(r == 0 ? std::numeric_limits<int64_t>::max()
                               : std::numeric_limits<int64_t>::min()),
            std::numeric_limits<int64_t>::max());
  EXPECT_EQ(world().sum(k31 + r), n * k31 + n * (n - 1) / 2);
}

TEST(ControlPlane, ReducesFloatingValues) {
  const int r = world().rank(), n = world().size();
  EXPECT_DOUBLE_EQ(world().sum(0.25 + r), 0.25 * n + n * (n - 1) / 2);
  EXPECT_EQ(world().max(-1.5 - r), -1.5);
  EXPECT_EQ(world().min(-1.5 - r), -0.5 - n);
  EXPECT_EQ(world().max(9.3e18 + 4096.0 * r), 9.3e18 + 4096.0 * (n - 1));
  // NaN on any rank is seen by every rank.
  for (int bad = 0; bad < n; ++bad) {
    const double value = r == bad ? std::nan("") : 1.0;
    EXPECT_TRUE(std::isnan(world().max(value)));
    EXPECT_TRUE(std::isnan(world().min(value)));
    EXPECT_TRUE(std::isnan(world().sum(value)));
  }
  EXPECT_EQ(world().max(-std::numeric_limits<double>::infinity()),
            -std::numeric_limits<double>::infinity());
}

TEST(ControlPlane, SumsUnsignedWordsModulo64Bits) {
  const auto n = static_cast<uint64_t>(world().size());
  const uint64_t high = uint64_t{1} << 63;
  std::vector<uint64_t> values{high, ~uint64_t{0}, uint64_t{1} << 31, high + 5,
                               static_cast<uint64_t>(world().rank())};
  world().sum_each(values);
  EXPECT_EQ(values[0], high * n);
  EXPECT_EQ(values[1], ~uint64_t{0} * n);
  EXPECT_EQ(values[2], (uint64_t{1} << 31) * n);
  EXPECT_EQ(values[3], (high + 5) * n);
  EXPECT_EQ(values[4], n * (n - 1) / 2);
}

TEST(ControlPlane, AllAndAny) {
  const int r = world().rank(), n = world().size();
  EXPECT_TRUE(world().all(true));
  EXPECT_FALSE(world().any(false));
  for (int one = 0; one < n; ++one) {
    EXPECT_FALSE(world().all(r != one));
    EXPECT_TRUE(world().any(r == one));
  }
}

TEST(ControlPlane, BroadcastsAndGathersInPieces) {
  const int r = world().rank(), n = world().size();
  const Communicator cut = small_limits({.message_bytes = 13});
  for (const Communicator* group : {&world(), &cut}) {
    for (int root = 0; root < n; ++root) {
      const std::string text = fmt::format("from rank {} {}", root, std::string(100, 'x'));
      EXPECT_EQ(group->broadcast(r == root ? text : "other", root), text);
      EXPECT_EQ(group->broadcast(r == root ? std::string() : "other", root), "");
    }
    const auto all = group->gather_all(std::string(static_cast<size_t>(r * 37), char('a' + r)));
    ASSERT_EQ(all.size(), static_cast<size_t>(n));
    for (int other = 0; other < n; ++other)
      EXPECT_EQ(all[static_cast<size_t>(other)],
                std::string(static_cast<size_t>(other * 37), char('a' + other)));
  }
  EXPECT_EQ(world().gather_all(""), std::vector<std::string>(static_cast<size_t>(n)));
  world().barrier();
}

TEST(ControlPlane, RequireAllThrowsTheFirstFailingRanksError) {
  const int r = world().rank(), n = world().size();
  EXPECT_NO_THROW(world().require_all(true, ExitCode::io, "never"));
  for (int first = 0; first < n; ++first) {
    try {
      const ExitCode code = r == first ? ExitCode::io : ExitCode::bad_data;
      world().require_all(r < first, code, fmt::format("rank {} says no", r));
      FAIL() << "no exception on rank " << r;
    } catch (const AgreedError& e) {
      EXPECT_EQ(e.code(), ExitCode::io);
      EXPECT_EQ(std::string(e.what()), fmt::format("rank {} says no", first));
      EXPECT_TRUE(e.whole_world());
      EXPECT_EQ(e.who().empty(), first == 0);
    }
  }
}

TEST(Split, OrdersByKeyAndLeavesRanksAside) {
  const int r = world().rank(), n = world().size();
  const Communicator reversed = world().split(0, -r, "reversed");
  EXPECT_EQ(reversed.rank(), n - 1 - r);
  EXPECT_EQ(reversed.world_ranks().front(), n - 1);
  EXPECT_EQ(reversed.name(), "reversed");
  const Communicator odd = world().split(r % 2 == 1 ? 7 : -1, r, "odd");
  EXPECT_EQ(odd.size(), r % 2 == 1 ? n / 2 : 1);
  EXPECT_EQ(odd.world_ranks()[static_cast<size_t>(odd.rank())], r);
}

TEST(Split, MovesLeaveTheSourceEmpty) {
  Communicator a = world().split(0, world().rank(), "a");
  Communicator b = std::move(a);
  EXPECT_EQ(b.sum(int64_t{1}), world().size());
  Communicator c = world().split(0, world().rank(), "c");
  c = std::move(b);
  EXPECT_EQ(c.name(), "a");
  EXPECT_EQ(c.sum(int64_t{1}), world().size());
}

class DataPlane : public testing::TestWithParam<const char*> {
 public:
  Stream& stream() {
    return std::strcmp(GetParam(), "compute") == 0 ? device().compute() : device().communication();
  }
};

TEST_P(DataPlane, AllReduceAddsInRankOrderOnAllRanks) {
  const Communicator cut =
      small_limits({.message_bytes = 48, .scratch_bytes = 1000, .one_step_bytes = 100});
  for (int64_t count : {1, 3, 63, 64, 65, 1000, 100003}) {
    for (const Communicator* group : {&world(), &cut}) {
      if (group == &cut && count > 1000) continue;
      std::vector<float> values = values_of(world().rank(), count);
      group->all_reduce(stream(), view_of(values));
      stream().synchronize();
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(values[static_cast<size_t>(i)], sum_at(i)) << "element " << i << " of " << count;
      expect_same_on_all_ranks(values);
    }
  }
}

TEST_P(DataPlane, AllReduceOfBf16SumsInF32AndRoundsOnce) {
  for (int64_t count : {1, 129, 50001}) {
    std::vector<uint16_t> values(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i)
      values[static_cast<size_t>(i)] = to_bf16(element(world().rank(), i));
    world().all_reduce(stream(), view_of(values));
    stream().synchronize();
    for (int64_t i = 0; i < count; ++i) {
      float total = from_bf16(to_bf16(element(0, i)));
      for (int r = 1; r < world().size(); ++r) total += from_bf16(to_bf16(element(r, i)));
      ASSERT_EQ(values[static_cast<size_t>(i)], to_bf16(total)) << "element " << i;
    }
    expect_same_on_all_ranks(values);
  }
}

TEST_P(DataPlane, AllReduceMax) {
  for (int64_t count : {5, 40000}) {
    std::vector<float> values = values_of(world().rank(), count);
    if (world().rank() == world().size() - 1) values[3] = std::nanf("");
    std::vector<uint16_t> halves(values.size());
    for (size_t i = 0; i < values.size(); ++i) halves[i] = to_bf16(values[i]);
    world().all_reduce(stream(), view_of(values), Reduce::max);
    world().all_reduce(stream(), view_of(halves), Reduce::max);
    stream().synchronize();
    for (int64_t i = 0; i < count; ++i) {
      float largest = element(0, i);
      for (int r = 1; r < world().size(); ++r) largest = std::max(largest, element(r, i));
      if (i == 3) {
        EXPECT_TRUE(std::isnan(values[3]));
        EXPECT_TRUE(std::isnan(from_bf16(halves[3])));
        continue;
      }
      ASSERT_EQ(values[static_cast<size_t>(i)], largest);
      ASSERT_EQ(halves[static_cast<size_t>(i)], to_bf16(largest));
    }
    expect_same_on_all_ranks(values);
  }
}

TEST_P(DataPlane, ReduceScatterInPlaceAndOutOfPlace) {
  const int r = world().rank(), n = world().size();
  const Communicator cut = small_limits({.message_bytes = 52, .scratch_bytes = 600});
  for (const Communicator* group : {&world(), &cut}) {
    for (int64_t m : {1, 67, 5000}) {
      std::vector<float> whole = values_of(r, n * m), apart(static_cast<size_t>(m), -1.0f);
      const std::vector<float> before = whole;
      group->reduce_scatter(stream(), view_of(whole), view_of(apart));
      stream().synchronize();
      EXPECT_EQ(whole, before);
      group->reduce_scatter(stream(), view_of(whole), view_of(whole).range(r * m, (r + 1) * m));
      stream().synchronize();
      for (int64_t i = 0; i < m; ++i) {
        ASSERT_EQ(apart[static_cast<size_t>(i)], sum_at(r * m + i));
        ASSERT_EQ(whole[static_cast<size_t>(r * m + i)], sum_at(r * m + i));
      }
    }
  }
}

TEST_P(DataPlane, AllGatherInPlaceAndOutOfPlace) {
  const int r = world().rank(), n = world().size();
  const Communicator cut = small_limits({.message_bytes = 20});
  for (const Communicator* group : {&world(), &cut}) {
    for (int64_t m : {1, 67, 5000}) {
      if (group == &cut && m > 67) continue;
      std::vector<float> expected;
      for (int other = 0; other < n; ++other)
        for (float v : values_of(other, m)) expected.push_back(v);
      std::vector<float> mine = values_of(r, m), whole(static_cast<size_t>(n * m), -1.0f);
      group->all_gather(stream(), view_of(mine), view_of(whole));
      stream().synchronize();
      EXPECT_EQ(whole, expected);
      std::vector<float> in_place(static_cast<size_t>(n * m), -1.0f);
      std::copy(mine.begin(), mine.end(), in_place.begin() + r * m);
      group->all_gather(stream(), view_of(in_place).range(r * m, (r + 1) * m), view_of(in_place));
      stream().synchronize();
      EXPECT_EQ(in_place, expected);
    }
  }
}

TEST_P(DataPlane, BroadcastFromEveryRoot) {
  const Communicator cut = small_limits({.message_bytes = 100});
  for (const Communicator* group : {&world(), &cut}) {
    for (int root = 0; root < world().size(); ++root) {
      std::vector<float> values = values_of(world().rank() == root ? root : 99, 12345);
      group->broadcast(stream(), view_of(values), root);
      stream().synchronize();
      EXPECT_EQ(values, values_of(root, 12345));
    }
  }
}

// Rank r sends (r + 2 peer) % 4 rows of 3 to each peer: some counts are zero, all differ.
TEST_P(DataPlane, AllToAllWithUnequalRows) {
  const int r = world().rank(), n = world().size();
  const auto rows = [](int from, int to) { return int64_t{(from + 2 * to) % 4}; };
  std::vector<int64_t> send_rows, receive_rows;
  std::vector<float> send, expected;
  for (int peer = 0; peer < n; ++peer) {
    send_rows.push_back(rows(r, peer));
    receive_rows.push_back(rows(peer, r));
    for (float v : values_of(r, 3 * rows(r, peer), 1000 * peer)) send.push_back(v);
    for (float v : values_of(peer, 3 * rows(peer, r), 1000 * r)) expected.push_back(v);
  }
  std::vector<float> receive(expected.size(), -1.0f);
  const auto matrix = [](std::vector<float>& v) {
    return view_of(v).as({static_cast<int64_t>(v.size() / 3), 3});
  };
  world().all_to_all(stream(), matrix(send), send_rows, matrix(receive), receive_rows);
  stream().synchronize();
  EXPECT_EQ(receive, expected);
}

// Around the ring in both directions at once: no send may need a buffer of MPI's (8 MiB).
TEST_P(DataPlane, ExchangeAroundTheRing) {
  const int r = world().rank(), n = world().size();
  const int next = (r + 1) % n, previous = (r + n - 1) % n;
  for (int64_t count : {256, 2 << 20}) {
    std::vector<float> up = values_of(r, count), down = values_of(r + 10, count);
    std::vector<float> from_below(up.size(), -1.0f), from_above(up.size(), -1.0f);
    const std::vector<Transfer> group{
        {Transfer::Direction::send, next, view_of(up)},
        {Transfer::Direction::send, previous, view_of(down)},
        {Transfer::Direction::receive, previous, view_of(from_below)},
        {Transfer::Direction::receive, next, view_of(from_above)},
    };
    world().exchange(stream(), group);
    stream().synchronize();
    EXPECT_EQ(from_below, values_of(previous, count));
    EXPECT_EQ(from_above, values_of(next + 10, count));
  }
}

INSTANTIATE_TEST_SUITE_P(Streams, DataPlane, testing::Values("compute", "communication"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace trireme::test
