// RANKS 2 3 4
// Neighbours that send and receive at once, with a transport that buffers nothing: Open MPI's
// eager limit is set to its least before MPI starts, so that every send waits for its receive.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/rank_test.hpp"
#include "trireme/comm/process_grid.hpp"

namespace trireme::test {

namespace {

// Before main, hence before MPI_Init.
const bool kUnbuffered = [] {
  return setenv("OMPI_MCA_btl_vader_eager_limit", "64", 1) == 0 &&
         setenv("OMPI_MCA_btl_tcp_eager_limit", "64", 1) == 0;
}();

std::vector<float> pattern(int stage, int micro_batch, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(1000 * stage + 10 * micro_batch) + static_cast<float>(i % 7);
  return values;
}

TensorView view_of(std::vector<float>& values) {
  return {reinterpret_cast<std::byte*>(values.data()),
          {static_cast<int64_t>(values.size())},
          DType::f32};
}

// Every stage sends its activations on and its gradients back, the ring's closing edge included,
// and only then waits for what it receives.
void pass_both_ways(const ProcessGrid& grid, int micro_batch, size_t count) {
  const int stages = grid.shape().pp, here = grid.here().pp;
  const int next = (here + 1) % stages, previous = (here + stages - 1) % stages;
  const PipelineEdge& up = grid.to_next();
  const PipelineEdge& down = grid.to_previous();
  std::vector<float> activation = pattern(here, micro_batch, count);
  std::vector<float> gradient = pattern(here + 50, micro_batch, count);
  std::vector<float> from_previous(count, -1.0f), from_next(count, -1.0f);
  using enum Transfer::Direction;
  const std::vector<Transfer> send_up{{send, 1, view_of(activation)}};
  const std::vector<Transfer> receive_up{{receive, 0, view_of(from_previous)}};
  const std::vector<Transfer> send_down{{send, 0, view_of(gradient)}};
  const std::vector<Transfer> receive_down{{receive, 1, view_of(from_next)}};
  up.activations.exchange(*up.activation_stream, send_up);
  down.gradients.exchange(*down.gradient_stream, send_down);
  down.activations.exchange(*down.activation_stream, receive_up);
  up.gradients.exchange(*up.gradient_stream, receive_down);
  for (Stream* stream :
       {down.activation_stream, up.gradient_stream, up.activation_stream, down.gradient_stream})
    stream->synchronize();
  EXPECT_EQ(from_previous, pattern(previous, micro_batch, count));
  EXPECT_EQ(from_next, pattern(next + 50, micro_batch, count));
}

}  // namespace

TEST(UnbufferedExchange, PipelineNeighboursNeverBlockEachOther) {
  ASSERT_TRUE(kUnbuffered);
  const ProcessGrid grid(world(), {.pp = world().size()}, 1, device());
  for (const size_t count : {size_t{256}, size_t{1} << 14, size_t{2} << 20})
    for (int micro_batch = 0; micro_batch < 8; ++micro_batch)
      if (count < 1 << 20 || micro_batch < 2) pass_both_ways(grid, micro_batch, count);
}

TEST(UnbufferedExchange, CollectivesToo) {
  std::vector<float> values(2000003, static_cast<float>(world().rank() + 1));
  world().all_reduce(device().communication(), view_of(values));
  device().communication().synchronize();
  const auto n = static_cast<float>(world().size());
  for (float v : values) ASSERT_EQ(v, n * (n + 1) / 2);
}

}  // namespace trireme::test
