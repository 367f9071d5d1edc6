// Attention of one token over a cache equals the last row of causal attention over its sequence;
// keys and values land where they belong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "support/attention_reference.hpp"

namespace trireme::test {
namespace {

// Three sequences of a cache of five, of odd lengths beyond one block of keys, in any order.
class Decode : public ::testing::Test {
 protected:
  static constexpr int64_t kCapacity = 700, kSequences = 5;
  Device device_{DeviceOptions{}};
};

TensorView view_of(std::vector<int32_t>& values) {
  return {reinterpret_cast<std::byte*>(values.data()),
          {static_cast<int64_t>(values.size())},
          DType::i32};
}

TEST_F(Decode, EqualsTheLastRowOfCausalAttention) {
  const std::vector<std::pair<int64_t, int64_t>> tokens = {{3, 600}, {0, 0}, {4, 36}};
  for (const auto& [heads, kv_heads, size] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {4, 2, 6}, {6, 3, 37}, {2, 1, 256}}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      AttentionDecode call;
      call.heads = heads, call.kv_heads = kv_heads, call.head_size = size;
      call.capacity = kCapacity;
      call.scale = 0.3f;
      TestMatrix q = TestMatrix::random(3, heads * size, type, 5, 3, 2);
      TestMatrix keys = TestMatrix::random(kSequences * kCapacity, kv_heads * size, type, 6, 0, 2);
      TestMatrix values = TestMatrix::random(kSequences * kCapacity, kv_heads * size, type, 7, 5);
      TestMatrix output(3, heads * size, type, 2);
      std::vector<int32_t> rows;
      for (const auto& token : tokens)
        rows.push_back(static_cast<int32_t>(token.first * kCapacity + token.second));
      call.q = q.view(), call.k = keys.view(), call.v = values.view(), call.output = output.view();
      call.rows = view_of(rows);
      attention_decode(device_.compute(), call);
      EXPECT_TRUE(output.padding_untouched());

      const std::vector<float> out = output.get();
      for (size_t i = 0; i < tokens.size(); ++i) {
        AttentionShape shape;
        shape.batch = 1, shape.query_length = 1, shape.key_length = tokens[i].second + 1;
        shape.query_offset = tokens[i].second;
        shape.heads = heads, shape.kv_heads = kv_heads, shape.head_size = size;
        shape.scale = call.scale;
        Problem problem(shape, type, 1, 0);
        const auto piece = [](const TestMatrix& x, int64_t first, int64_t count, int64_t width) {
          const std::vector<float> all = x.get();
          return std::vector<float>(all.begin() + first * width,
                                    all.begin() + (first + count) * width);
        };
        const int64_t start = tokens[i].first * kCapacity, n = tokens[i].second + 1;
        problem.q.set(piece(q, static_cast<int64_t>(i), 1, heads * size));
        problem.k.set(piece(keys, start, n, kv_heads * size));
        problem.v.set(piece(values, start, n, kv_heads * size));
        const std::span<const float> mine(out.data() + i * static_cast<size_t>(heads * size),
                                          static_cast<size_t>(heads * size));
        EXPECT_LT(scaled_error(mine, reference(problem).output), type == DType::f32 ? 3e-6 : 5e-3)
            << heads << "x" << size << " token " << i;
      }
    }
  }
}

TEST_F(Decode, RowsGoToTheirPlaces) {
  for (const DType type : {DType::f32, DType::bf16}) {
    TestMatrix from = TestMatrix::random(3, 7, type, 1, 4);
    TestMatrix to(9, 7, type);
    std::vector<int32_t> rows = {8, 0, 5};
    scatter_rows(device_.compute(), {from.view(), view_of(rows), to.tensor({9, 7})});
    const std::vector<float> want = from.get(), have = to.get();
    for (int64_t r = 0; r < 9; ++r) {
      const auto place = std::ranges::find(rows, static_cast<int32_t>(r));
      for (int64_t i = 0; i < 7; ++i) {
        const float value = have[static_cast<size_t>(r * 7 + i)];
        if (place == rows.end())
          EXPECT_TRUE(std::isnan(value));
        else
          EXPECT_EQ(value, want[static_cast<size_t>((place - rows.begin()) * 7 + i)]);
      }
    }
  }
}

TEST_F(Decode, WrongShapesAreErrors) {
  TestMatrix q(2, 8, DType::f32), keys(20, 4, DType::f32), output(2, 8, DType::f32);
  std::vector<int32_t> rows = {3, 13};
  AttentionDecode call{
      2, 1, 4, 10, 1, q.view(), keys.view(), keys.view(), output.view(), view_of(rows)};
  keys.set(std::vector<float>(80, 1));
  q.set(std::vector<float>(16, 1));
  attention_decode(device_.compute(), call);
  const auto refused = [&](const AttentionDecode& wrong) {
    EXPECT_THROW(attention_decode(device_.compute(), wrong), Error);
  };
  AttentionDecode wrong = call;
  wrong.capacity = 7;
  refused(wrong);
  wrong = call;
  wrong.kv_heads = 3;
  refused(wrong);
  wrong = call;
  wrong.head_size = 300;
  refused(wrong);
  rows[1] = 20;
  refused(call);
}

}  // namespace
}  // namespace trireme::test
