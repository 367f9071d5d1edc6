// The parameter table and the sizes of models: golden counts, splits, slices.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "trireme/model/model_shape.hpp"
#include "trireme/model/parameter_table.hpp"

namespace trireme {
namespace {

ModelShape gpt2_124m() {
  ModelShape m;
  m.layers = 12;
  m.hidden = 768;
  m.heads = m.kv_heads = 12;
  m.head_size = 64;
  m.ffn = 3072;
  m.vocab = 50257;
  m.max_sequence = 1024;
  return m;
}

ModelShape llama3_8b() {
  ModelShape m;
  m.family = Family::llama;
  m.layers = 32;
  m.hidden = 4096;
  m.heads = 32;
  m.kv_heads = 8;
  m.head_size = 128;
  m.ffn = 14336;
  m.vocab = 128256;
  m.tied = m.bias = m.learned_positions = m.layer_norm = false;
  m.gated = true;
  m.rope_base = 500000;
  return m;
}

// Odd sizes that still split over tp 2 and 4: vocabulary 61, MLP 172, one KV head for two query
// heads.
ModelShape odd(bool llama) {
  ModelShape m;
  m.layers = 5;
  m.hidden = 24;
  m.heads = 4;
  m.kv_heads = llama ? 2 : 4;
  m.head_size = 6;
  m.ffn = 172;
  m.vocab = 61;
  m.max_sequence = 9;
  m.tied = !llama;
  m.bias = !llama;
  m.gated = llama;
  m.learned_positions = m.layer_norm = !llama;
  return m;
}

TEST(ModelShape, GoldenCounts) {
  EXPECT_EQ(gpt2_124m().parameters(), 124439808);
  EXPECT_EQ(llama3_8b().parameters(), 8030261248);
  EXPECT_EQ(llama3_8b().flops_per_token_full(8192), 57912852480);
}

TEST(ModelShape, SmallGatedModelByHand) {
  ModelShape m = odd(true);
  m.layers = 2;
  m.hidden = 64;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_size = 16;
  m.vocab = 256;
  EXPECT_EQ(m.flops_per_token_full(32), 691200);
}

TEST(ModelShape, LayersAreSplitCompletely) {
  for (int pp = 1; pp <= 5; ++pp) {
    for (int v = 1; v <= 3; ++v) {
      for (int64_t layers = pp * v; layers <= 17; ++layers) {
        std::vector<LayerRange> all(static_cast<size_t>(pp * v));
        for (int s = 0; s < pp; ++s) {
          const std::vector<LayerRange> mine = layer_ranges(layers, pp, v, s);
          ASSERT_EQ(mine.size(), static_cast<size_t>(v));
          for (int c = 0; c < v; ++c)
            all[static_cast<size_t>(c * pp + s)] = mine[static_cast<size_t>(c)];
        }
        int64_t next = 0;
        for (const LayerRange& r : all) {
          EXPECT_EQ(r.first, next);
          EXPECT_GE(r.count(), layers / (pp * v));
          EXPECT_LE(r.count(), layers / (pp * v) + 1);
          next = r.last;
        }
        EXPECT_EQ(next, layers);
      }
    }
  }
  EXPECT_EQ(layer_ranges(5, 2, 1, 0)[0].count(), 3);
  EXPECT_EQ(layer_ranges(6, 4, 1, 0)[0].count(), 1);
  EXPECT_THROW(layer_ranges(2, 4, 1, 0), Error);
}

TEST(ModelShape, RopeFrequenciesOfLlama31) {
  ModelShape m = llama3_8b();
  m.rope_scaling = {8, 1, 4, 8192};
  const std::vector<float> f = rope_frequencies(m);
  ASSERT_EQ(f.size(), 64u);
  EXPECT_NEAR(f[1], 8.146172339e-01, 1e-7);
  EXPECT_NEAR(f[32] / 5.248461610e-04, 1, 1e-6);
  EXPECT_NEAR(f[34] / 1.785078128e-04, 1, 1e-6);
  EXPECT_NEAR(f[63] / 3.068925989e-07, 1, 1e-6);
}

// Over all ranks of a grid every logical element is counted exactly once.
void expect_counted_once(const ModelShape& m, const GridShape& grid, int virtual_stages, bool sp) {
  std::map<std::string, std::vector<int>> seen;
  int64_t total = 0;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    TableOptions o{grid, coord_of(rank, grid), virtual_stages, sp, 500};
    if (o.here.dp != 0) continue;
    const ParameterTable table(m, o);
    for (const ParameterEntry& e : table.entries()) {
      std::vector<int>& marks = seen[e.spec.name];
      marks.resize(static_cast<size_t>(e.spec.whole.elements()));
      EXPECT_LE(e.offset + e.elements(), table.groups()[static_cast<size_t>(e.group)].count);
      if (!e.spec.counts) continue;
      const int64_t first = e.first_row * e.local.row_elements();
      for (int64_t i = 0; i < e.real_elements(); ++i) ++marks[static_cast<size_t>(first + i)];
      total += e.real_elements();
    }
  }
  for (const auto& [name, marks] : seen)
    for (int count : marks) ASSERT_EQ(count, 1) << name << " on " << grid.text();
  EXPECT_EQ(total, m.parameters()) << grid.text();
}

// Norms of q and k, wide heads, biases of q, k and v alone.
ModelShape odd_qwen() {
  ModelShape m = odd(true);
  m.head_size = 10;
  m.qk_norm = m.qkv_bias = true;
  return m;
}

TEST(ParameterTable, NormsOfHeadsCountOnceAndSumOverTp) {
  for (int tp : {1, 2, 4})
    for (int pp : {1, 2})
      for (bool sp : {false, true}) expect_counted_once(odd_qwen(), {tp, 1, 2, pp}, 1, sp);
  const ParameterTable table(odd_qwen(), {{4, 1, 1, 1}, {1, 0, 0, 0}});
  for (const char* name :
       {"layers.0.attention.query_norm.gain", "layers.0.attention.key_norm.gain"}) {
    const ParameterSpec& spec = table.entries()[static_cast<size_t>(table.find(name))].spec;
    EXPECT_EQ(spec.extra_sum, ExtraSum::tp) << name;
    EXPECT_EQ(spec.split, Split::none);
    EXPECT_FALSE(spec.counts);
    EXPECT_FALSE(spec.decays);
  }
  EXPECT_FALSE(table.contains("layers.0.attention.output.bias"));
  EXPECT_FALSE(table.contains("layers.0.norm1.bias"));
  EXPECT_TRUE(table.contains("layers.0.attention.value.bias"));
}

// Qwen3-0.6B has 596,049,920 parameters, Qwen2-0.5B 494,032,768.
TEST(ModelShape, GoldenCountsOfQwen) {
  ModelShape m = llama3_8b();
  m.layers = 28;
  m.hidden = 1024;
  m.heads = 16;
  m.kv_heads = 8;
  m.ffn = 3072;
  m.vocab = 151936;
  m.tied = m.qk_norm = true;
  EXPECT_EQ(m.parameters(), 596049920);
  m.qk_norm = false;
  m.qkv_bias = true;
  m.layers = 24;
  m.hidden = 896;
  m.heads = 14;
  m.kv_heads = 2;
  m.head_size = 64;
  m.ffn = 4864;
  EXPECT_EQ(m.parameters(), 494032768);
}

TEST(ParameterTable, EveryElementCountsOnce) {
  for (bool llama : {false, true})
    for (int tp : {1, 2, 4})
      for (int pp : {1, 2, 5})
        for (bool sp : {false, true}) {
          expect_counted_once(odd(llama), {tp, 1, 2, pp}, 1, sp);
          if (pp == 2) expect_counted_once(odd(llama), {tp, 1, 1, pp}, 2, sp);
        }
}

TEST(ParameterTable, BucketsAreEqualShardsInBackwardOrder) {
  const GridShape grid{2, 1, 3, 1};
  const ParameterTable table(odd(false), {grid, {}, 1, false, 2000});
  const ParameterGroup& group = table.groups()[0];
  ASSERT_GE(group.buckets.size(), 3u);
  int64_t next = 0;
  for (const Bucket& b : group.buckets) {
    EXPECT_EQ(b.first, next);
    EXPECT_EQ(b.count % (3 * ParameterTable::kShardAlignment), 0);
    EXPECT_LE(b.first_layer, b.last_layer);
    next = b.end();
  }
  EXPECT_EQ(next, group.count);
  EXPECT_EQ(group.buckets.back().first_layer, -1);
}

TEST(ParameterTable, PackedWeightsTouch) {
  const ParameterTable table(odd(true), {{2, 1, 1, 1}, {1, 0, 0, 0}});
  auto at = [&](const char* name) {
    return table.entries()[static_cast<size_t>(table.find(name))];
  };
  const ParameterEntry q = at("layers.2.attention.query.weight");
  const ParameterEntry k = at("layers.2.attention.key.weight");
  const ParameterEntry v = at("layers.2.attention.value.weight");
  EXPECT_EQ(k.offset, q.offset + q.elements());
  EXPECT_EQ(v.offset, k.offset + k.elements());
  EXPECT_EQ(k.rows, 6);
  EXPECT_EQ(k.first_row, 6);
  const ParameterEntry gate = at("layers.2.mlp.gate.weight");
  EXPECT_EQ(at("layers.2.mlp.up.weight").offset, gate.offset + gate.elements());
}

TEST(ParameterTable, FewKvHeadsAreCopied) {
  for (int t = 0; t < 4; ++t) {
    const ParameterTable table(odd(true), {{4, 1, 1, 1}, {t, 0, 0, 0}});
    const ParameterEntry& k =
        table.entries()[static_cast<size_t>(table.find("layers.0.attention.key.weight"))];
    EXPECT_EQ(k.first_row, t / 2 * 6);
    EXPECT_EQ(k.spec.extra_sum, ExtraSum::kv_copies);
    EXPECT_EQ(k.spec.counts, t % 2 == 0);
  }
}

TEST(ParameterTable, VocabularyPaddingHoldsNothing) {
  for (int t = 0; t < 4; ++t) {
    const ParameterTable table(odd(false), {{4, 1, 1, 1}, {t, 0, 0, 0}});
    const ParameterEntry& e = table.entries()[static_cast<size_t>(table.find("embedding.tokens"))];
    EXPECT_EQ(e.local[0], 16);
    EXPECT_EQ(e.rows, t < 3 ? 16 : 13);
  }
  ModelShape five = odd(false);
  five.vocab = 5;
  const ParameterTable table(five, {{4, 1, 1, 1}, {3, 0, 0, 0}});
  EXPECT_EQ(table.entries()[static_cast<size_t>(table.find("embedding.tokens"))].rows, 0);
}

TEST(ParameterTable, RefusesWhatTpDoesNotDivide) {
  ModelShape m = odd(false);
  m.heads = m.kv_heads = 6;
  EXPECT_THROW(ParameterTable(m, {{4, 1, 1, 1}, {}}), Error);
  m = odd(false);
  m.ffn = 171;
  EXPECT_THROW(ParameterTable(m, {{2, 1, 1, 1}, {}}), Error);
}

TEST(ParameterTable, InitialValuesDoNotDependOnTheSplit) {
  const ModelShape m = odd(false);
  const ParameterTable whole(m, {});
  const ParameterEntry& w =
      whole.entries()[static_cast<size_t>(whole.find("layers.1.mlp.up.weight"))];
  std::vector<float> all(static_cast<size_t>(w.real_elements()));
  whole.initial_values(w, 7, all);
  double squares = 0;
  for (float x : all) squares += double{x} * x;
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(all.size())), 0.02, 0.001);
  for (int t = 0; t < 4; ++t) {
    const ParameterTable part(m, {{4, 1, 1, 1}, {t, 0, 0, 0}});
    const ParameterEntry& e =
        part.entries()[static_cast<size_t>(part.find("layers.1.mlp.up.weight"))];
    std::vector<float> mine(static_cast<size_t>(e.real_elements()));
    part.initial_values(e, 7, mine);
    for (size_t i = 0; i < mine.size(); ++i)
      ASSERT_EQ(mine[i], all[static_cast<size_t>(e.first_row * m.hidden) + i]);
  }
}

TEST(SlicesOf, CutsARangeIntoRectangles) {
  ModelShape m = odd(false);
  const ParameterTable table(m, {{4, 1, 1, 1}, {3, 0, 0, 0}});
  const ParameterEntry& e = table.entries()[static_cast<size_t>(table.find("embedding.tokens"))];
  std::vector<std::byte> memory(static_cast<size_t>(e.elements()) * 4);
  for (int64_t first = 0; first < e.elements(); first += 7) {
    for (int64_t count : {1, 5, 24, 50, 100, 1000}) {
      if (first + count > e.elements()) continue;
      std::set<int64_t> covered;
      for (const GlobalSlice& s :
           slices_of(e, first, count, memory.data() + first * 4, DType::f32, "x")) {
        const int64_t row = s.origin[0], column = s.origin[1];
        const int64_t begin = (s.local.data - memory.data()) / 4;
        EXPECT_EQ((row - e.first_row) * m.hidden + column, begin);
        for (int64_t i = 0; i < s.local.elements(); ++i) covered.insert(begin + i);
      }
      const int64_t last = std::min(first + count, e.real_elements());
      EXPECT_EQ(static_cast<int64_t>(covered.size()), std::max<int64_t>(0, last - first));
      if (!covered.empty()) {
        EXPECT_EQ(*covered.begin(), first);
        EXPECT_EQ(*covered.rbegin(), last - 1);
      }
    }
  }
}

}  // namespace
}  // namespace trireme
