// Rows of [grid], [model], [precision] and [batch]: what is computed, and where.
#include "config/settings_rows.hpp"

namespace trireme {
namespace {

std::vector<Setting> size_rows() {
  const FieldOf of(&Settings::model);
  constexpr auto kShape = SettingEffect::shape;
  return {
      {.name = "model.family",
       .field = of(&ModelSettings::family),
       .choices = {"gpt2", "llama"},
       .required = true,
       .effect = kShape,
       .help = "gpt2: learned positions, LayerNorm, GELU. llama: RoPE, RMSNorm, SwiGLU, grouped KV "
               "heads."},
      {.name = "model.layers",
       .field = of(&ModelSettings::layers),
       .unit = "layers",
       .range = {1, kMostLayers},
       .required = true,
       .effect = kShape,
       .help = "Transformer layers. Those that pp does not divide are spread unevenly; none is "
               "dropped."},
      {.name = "model.hidden",
       .field = of(&ModelSettings::hidden),
       .unit = "elements",
       .range = {1, kMostWidth},
       .required = true,
       .effect = kShape,
       .help = "Width of the residual stream."},
      {.name = "model.heads",
       .field = of(&ModelSettings::heads),
       .unit = "heads",
       .range = {1, 4096},
       .required = true,
       .effect = kShape,
       .help = "Query heads. tp must divide them."},
      {.name = "model.kv_heads",
       .field = of(&ModelSettings::kv_heads),
       .unit = "heads",
       .range = {0, 4096},
       .derived = "model.heads",
       .effect = kShape,
       .help = "Key and value heads; divides heads. Fewer than tp: copies, whose gradients are "
               "summed."},
      {.name = "model.head_size",
       .field = of(&ModelSettings::head_size),
       .unit = "elements",
       .range = {0, 4096},
       .derived = "model.hidden / model.heads",
       .effect = kShape,
       .help = "Width of one head. llama needs an even one."},
      {.name = "model.ffn",
       .field = of(&ModelSettings::ffn),
       .unit = "elements",
       .range = {0, 16 * kMostWidth},
       .derived = "4 x model.hidden for gpt2; llama must give it",
       .effect = kShape,
       .help = "Width inside the MLP. tp must divide it."},
      {.name = "model.vocab",
       .field = of(&ModelSettings::vocab),
       .unit = "tokens",
       .range = {1, 2147483647},
       .required = true,
       .effect = kShape,
       .help =
           "Token ids are below it. Rows that are padded to split it over tp carry no probability. "
           "The bytes tokenizer has 257."},
      {.name = "model.positions",
       .field = of(&ModelSettings::positions),
       .unit = "tokens",
       .range = {0, kMostTokens},
       .derived = "batch.sequence for gpt2",
       .effect = kShape,
       .help = "Length of the learned position table (gpt2); at least batch.sequence."},
      {.name = "model.tied",
       .field = of(&ModelSettings::tied),
       .effect = kShape,
       .help = "The output head is the token table."},
      {.name = "model.bias",
       .field = of(&ModelSettings::bias),
       .effect = kShape,
       .help = "Biases in all linears and, in gpt2, in LayerNorm."},
      {.name = "model.qkv_bias",
       .field = of(&ModelSettings::qkv_bias),
       .only_with = "model.bias = false",
       .effect = kShape,
       .help = "Biases of query, key and value (Qwen2)."},
      {.name = "model.output_bias",
       .field = of(&ModelSettings::output_bias),
       .only_with = "model.bias = false",
       .effect = kShape,
       .help = "Bias of attention's output."},
      {.name = "model.mlp_bias",
       .field = of(&ModelSettings::mlp_bias),
       .only_with = "model.bias = false",
       .effect = kShape,
       .help = "Biases in the MLP."},
      {.name = "model.qk_norm",
       .field = of(&ModelSettings::qk_norm),
       .only_with = "model.family = llama",
       .effect = kShape,
       .help = "RMSNorm over each head of query and key, before the rotation (Qwen3)."},
  };
}

std::vector<Setting> arithmetic_rows() {
  const FieldOf of(&Settings::model);
  constexpr auto kLayout = SettingEffect::layout;
  return {
      {.name = "model.dropout",
       .field = of(&ModelSettings::dropout),
       .range = {.low = 0, .high = 1, .open_high = true},
       .help =
           "Probability, on embeddings, attention probabilities and both branches of a layer. The "
           "masks are the same on every layout."},
      {.name = "model.norm_epsilon",
       .field = of(&ModelSettings::norm_epsilon),
       .range = {.low = 0, .high = 1, .open_low = true},
       .help = "Added to the variance in norms."},
      {.name = "model.init_std",
       .field = of(&ModelSettings::init_std),
       .range = {0, 10},
       .help =
           "Standard deviation of initial weights; output projections take it / sqrt(2 layers)."},
      {.name = "model.rope_base",
       .field = of(&ModelSettings::rope_base),
       .range = {.low = 1, .high = 1e12, .open_low = true},
       .only_with = "model.family = llama",
       .help =
           "Base of the rotary frequencies (llama). Llama 1 and 2 have 10000, Llama 3 has 500000."},
      {.name = "model.rope_factor",
       .field = of(&ModelSettings::rope_factor),
       .range = {0, 1e6},
       .derived = "no scaling",
       .only_with = "model.family = llama",
       .help = "Divides low rotary frequencies, as Llama 3.1 does for long contexts."},
      {.name = "model.rope_low_frequency",
       .field = of(&ModelSettings::rope_low_frequency),
       .range = {.low = 0, .high = 1e6, .open_low = true},
       .only_with = "model.family = llama",
       .help = "Wavelengths above rope_original_length / this are divided by rope_factor."},
      {.name = "model.rope_high_frequency",
       .field = of(&ModelSettings::rope_high_frequency),
       .range = {.low = 0, .high = 1e6, .open_low = true},
       .only_with = "model.family = llama",
       .help =
           "Wavelengths below rope_original_length / this stay; between the two they are blended."},
      {.name = "model.rope_original_length",
       .field = of(&ModelSettings::rope_original_length),
       .unit = "tokens",
       .range = {1, kMostTokens},
       .only_with = "model.family = llama",
       .help = "Context length before the scaling."},
      {.name = "model.recompute",
       .field = of(&ModelSettings::recompute),
       .choices = {"none", "selective", "full"},
       .effect = kLayout,
       .help = "What backward computes again instead of keeping it: nothing, outputs of norms and "
               "activations, or whole layers. No number changes."},
      {.name = "model.recompute_layers",
       .field = of(&ModelSettings::recompute_layers),
       .unit = "layers",
       .range = {0, kMostLayers},
       .derived = "all of them",
       .effect = kLayout,
       .help = "With recompute = full: only the first so many layers of each chunk."},
  };
}

}  // namespace

std::vector<Setting> grid_rows() {
  const FieldOf of(&Settings::grid);
  constexpr auto kLayout = SettingEffect::layout;
  return {
      {.name = "grid.tp",
       .field = of(&GridSettings::tp),
       .unit = "ranks",
       .range = {1, kMostRanks},
       .effect = kLayout,
       .help = "Tensor parallel: every layer is split over so many neighbouring ranks."},
      {.name = "grid.cp",
       .field = of(&GridSettings::cp),
       .unit = "ranks",
       .range = {1, kMostRanks},
       .effect = kLayout,
       .help = "Context parallel: sequences are split. Only 1 works so far."},
      {.name = "grid.pp",
       .field = of(&GridSettings::pp),
       .unit = "ranks",
       .range = {1, kMostRanks},
       .effect = kLayout,
       .help = "Pipeline parallel: layers are split over so many stages."},
      {.name = "grid.dp",
       .field = of(&GridSettings::dp),
       .unit = "ranks",
       .range = {0, kMostRanks},
       .derived = "ranks / (tp x cp x pp)",
       .effect = kLayout,
       .help = "Data parallel: the global batch is split."},
      {.name = "grid.virtual_stages",
       .field = of(&GridSettings::virtual_stages),
       .unit = "chunks",
       .range = {1, kMostLayers},
       .effect = kLayout,
       .help = "Chunks of layers on each pipeline rank; above 1 the schedule is interleaved."},
      {.name = "grid.sequence_parallel",
       .field = of(&GridSettings::sequence_parallel),
       .effect = kLayout,
       .help = "Splits activations between layers over tp, by tokens. Needs tp above 1."},
      {.name = "grid.tp_overlap",
       .field = of(&GridSettings::tp_overlap),
       .choices = {"auto", "off", "on"},
       .effect = kLayout,
       .help = "Activations travel over tp beside the matrix products, shard by shard. Needs "
               "sequence_parallel. auto: on GPUs."},
      {.name = "grid.ranks",
       .field = of(&GridSettings::ranks),
       .range = {0, kMostRanks},
       .derived = "what the launcher says",
       .effect = kLayout,
       .help = "Ranks that must have started; another number is refused."},
      {.name = "grid.nodes",
       .field = of(&GridSettings::nodes),
       .unit = "hosts",
       .range = {0, kMostRanks},
       .derived = "what the launcher says",
       .effect = kLayout,
       .help = "Hosts that the ranks must be on; another number is refused."},
      {.name = "grid.tp_across_nodes",
       .field = of(&GridSettings::tp_across_nodes),
       .effect = kLayout,
       .help = "Allows a tensor-parallel group on several hosts."},
      {.name = "grid.share_devices",
       .field = of(&GridSettings::share_devices),
       .effect = kLayout,
       .help = "Allows more ranks than GPUs on a host that has several. For tests."},
  };
}

std::vector<Setting> model_rows() {
  std::vector<Setting> rows = size_rows();
  for (Setting& row : arithmetic_rows()) rows.push_back(std::move(row));
  return rows;
}

std::vector<Setting> precision_rows() {
  const FieldOf of(&Settings::precision);
  return {
      {.name = "precision.compute",
       .field = of(&PrecisionSettings::compute),
       .choices = {"f32", "tf32", "bf16"},
       .help = "Type of weights and activations in products. Sums, gradients, master weights and "
               "moments "
               "are f32. tf32 is f32 storage with shorter products, on GPUs."},
      {.name = "precision.deterministic",
       .field = of(&PrecisionSettings::deterministic),
       .help = "The same run twice gives the same bits."},
  };
}

std::vector<Setting> batch_rows() {
  const FieldOf of(&Settings::batch);
  return {
      {.name = "batch.sequence",
       .field = of(&BatchSettings::sequence),
       .unit = "tokens",
       .range = {1, kMostTokens},
       .required = true,
       .help = "Length of a training sequence."},
      {.name = "batch.global",
       .field = of(&BatchSettings::global),
       .unit = "sequences",
       .range = {1, kMostSequences},
       .required = true,
       .help = "Sequences of a step over all ranks; a multiple of micro x dp."},
      {.name = "batch.micro",
       .field = of(&BatchSettings::micro),
       .unit = "sequences",
       .range = {1, kMostSequences},
       .effect = SettingEffect::layout,
       .help = "Sequences that one rank takes in one pass."},
      {.name = "batch.ramp_start",
       .field = of(&BatchSettings::ramp_start),
       .unit = "sequences",
       .range = {0, kMostSequences},
       .derived = "no ramp",
       .help =
           "Global batch of the first steps. It grows by ramp_increment until it is batch.global."},
      {.name = "batch.ramp_increment",
       .field = of(&BatchSettings::ramp_increment),
       .unit = "sequences",
       .range = {0, kMostSequences},
       .help = "Divides batch.global - ramp_start; a multiple of micro x dp."},
      {.name = "batch.ramp_samples",
       .field = of(&BatchSettings::ramp_samples),
       .unit = "sequences",
       .range = {0, 1e15},
       .help = "Consumed sequences over which the batch grows, in equal parts."},
  };
}

}  // namespace trireme
