// All settings of a run, typed, one struct for each section of a deck. Plain values: reading decks
// is deck.hpp's work, the table of keys, units and ranges is settings_table.hpp's, and code below
// this folder gets its own option structs (layout.hpp converts).
//
// Members carry the names of the keys. Counts named in steps, sequences or tokens say so in the
// table.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/log.hpp"
#include "trireme/data/token_source.hpp"
#include "trireme/model/model_shape.hpp"

namespace trireme {

struct RunSettings {
  std::string directory;  // empty in a deck: runs/NAME OF THE DECK
  int64_t steps = 0;
  int64_t seed = 1234;
  int64_t evaluate_every = 0;
  int64_t evaluate_batches = 10;  // 0: the whole validation part
};

struct GridSettings {
  int64_t tp = 1, cp = 1, pp = 1;
  int64_t dp = 0;  // 0: what is left of the ranks
  int64_t virtual_stages = 1;
  bool sequence_parallel = false;
  enum class Overlap : uint8_t { automatic, off, on };
  Overlap tp_overlap = Overlap::automatic;
  int64_t ranks = 0, nodes = 0;  // expected; 0: what the launcher says
  bool tp_across_nodes = false;
  bool share_devices = false;
};

// A resolved deck has no zeros left in kv_heads, head_size, ffn and, for gpt2, positions.
struct ModelSettings {
  Family family = Family::gpt2;
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_size = 0, ffn = 0, vocab = 0;
  int64_t positions = 0;  // length of the learned position table
  bool tied = true, bias = true;
  bool qkv_bias = false, output_bias = false, mlp_bias = false;  // where bias is off
  bool qk_norm = false;
  double dropout = 0;
  double norm_epsilon = 1e-5;
  double init_std = 0.02;
  double rope_base = 10000;
  double rope_factor = 0;  // 0: no scaling
  double rope_low_frequency = 1, rope_high_frequency = 4;
  int64_t rope_original_length = 8192;
  Recompute recompute = Recompute::none;
  int64_t recompute_layers = 0;
};

struct PrecisionSettings {
  enum class Compute : uint8_t { f32, tf32, bf16 };
  Compute compute = Compute::f32;
  bool deterministic = true;
};

struct BatchSettings {
  int64_t sequence = 0;  // tokens
  int64_t global = 0;    // sequences, as all other members
  int64_t micro = 1;
  int64_t ramp_start = 0, ramp_increment = 0, ramp_samples = 0;
};

struct OptimizerSettings {
  double learning_rate = 3e-4;
  double weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double clip = 1;  // 0: off
  int64_t zero = 1;
  int64_t bucket = int64_t{16} << 20;  // elements
};

// Lengths in steps of the final global batch; the learning rate itself is evaluated in samples.
struct ScheduleSettings {
  enum class Kind : uint8_t { constant, linear, cosine, wsd, inverse_square_root };
  enum class WsdKind : uint8_t { linear, cosine, exponential, minus_sqrt };
  Kind kind = Kind::cosine;
  int64_t warmup = 0;
  int64_t decay = 0;  // a resolved deck has no zero here, unless there are no steps
  double minimum = 0, initial = 0;
  int64_t wsd_decay = 0;
  WsdKind wsd_kind = WsdKind::exponential;
  enum class Resume : uint8_t { same, keep, replace };
  Resume resume = Resume::same;
};

struct DataSettings {
  DataKind kind = DataKind::mock;
  std::string path;
  std::string train_path, validation_path;
  std::string validation_sets;
  std::string split = "969,30,1";
  DataOrder order = DataOrder::megatron;
  bool loss_mask = false;
  int64_t eod = -1;  // -1: none
  bool eod_mask_loss = false;
  bool reset_positions = false, reset_attention = false;
  std::string tokenizer;  // empty: not said
};

struct CheckpointSettings {
  int64_t every = 0;
  int64_t keep = 2;
  std::string load;
  bool load_optimizer = true;
  bool asynchronous = true;
  int64_t memory = 0;  // MiB of host memory a rank; 0: what the state needs
  int64_t retries = 3;
  double retry_after = 10;  // seconds
  int64_t alignment = 0;    // KiB; 0: by the size of the file
  int64_t stripes = 0;      // 0: as the directory has it
  bool direct = true;
};

struct LogSettings {
  LogLevel level = LogLevel::info;
  int64_t every = 10;
  int64_t gradients_at = 0;
  bool samples = false;
};

struct FaultSettings {
  double deadline = 0;      // seconds; 0: off
  double grace = 2;         // seconds; mpirun's
  double stop_before = 60;  // seconds before the end of the job; 0: off
  bool check_network = true;
  bool check_links = false;
  int64_t check_replicas = 0;
  int64_t skip_limit = 5;
  double hours_between_failures = 0;  // of the whole job; 0: 50000 / ranks
};

struct Settings {
  RunSettings run;
  GridSettings grid;
  ModelSettings model;
  PrecisionSettings precision;
  BatchSettings batch;
  OptimizerSettings optimizer;
  ScheduleSettings schedule;
  DataSettings data;
  CheckpointSettings checkpoint;
  LogSettings log;
  FaultSettings fault;
};

}  // namespace trireme
