// What training reads: numbered samples of T+1 tokens for training, validation and test.
//
// A sample depends on its number and the options only, so every rank that opens the same options
// sees the same samples, and resuming at any consumed count costs nothing. Ranks that need no
// tokens open nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/gpt_order.hpp"

namespace trireme {

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // Samples are numbered 0 ... samples() - 1; at least as many as were requested.
  virtual int64_t samples() const = 0;
  // Fills T+1 tokens: the inputs are the first T, the labels the last T. Safe from many threads.
  // Errors: bad_data for an id outside the vocabulary, no_input for a file that shrank.
  virtual void sample(int64_t index, std::span<int32_t> tokens) const = 0;
  // Whether some tokens do not count for the loss (prompts). Then flags() fills T+1 flags: 1 where
  // the token counts as a target, 0 where it does not.
  virtual bool flagged() const { return false; }
  virtual void flags(int64_t index, std::span<int32_t> flags) const;
  // One line for the log: tokens, epochs, samples.
  virtual std::string description() const = 0;
};

enum class DataKind : uint8_t { mock, indexed };
enum class DataOrder : uint8_t { megatron, random };

struct DataOptions {
  DataKind kind = DataKind::mock;
  // For indexed: a blend, as read_blend takes it (blend.hpp), that `split` cuts into parts; or
  // empty, and a blend for each part, taken whole. A dataset is a prefix of .bin and .idx, or names
  // token files of llm.c.
  std::string path;
  std::string train_path, validation_path, test_path;
  std::string validation_sets;     // as parse_named_blends takes it; each is taken whole
  bool loss_mask = false;          // PREFIX.mask beside each dataset says which tokens count
  std::string split = "969,30,1";  // mock data: always "1,1,1", as Megatron
  DataOrder order = DataOrder::megatron;
  int64_t sequence = 0;  // T, tokens
  uint64_t seed = 1234;  // order megatron: below 2^32
  int64_t vocab = 0;     // ids are checked against it
  // Samples wanted from each split: 0 = the split is not used, kOneEpoch = one pass. Each named
  // validation set gives as many as the validation split, which may be absent beside such sets.
  int64_t train_samples = 0, validation_samples = 0, test_samples = 0;
};

// Null where no samples were requested.
struct DataSources {
  struct Named {
    std::string name;
    std::unique_ptr<TokenSource> source;
  };
  std::unique_ptr<TokenSource> train, validation, test;
  std::vector<Named> validation_sets;
};

// Local call; reads the index files. The indices lie in `memory`, which lives as long as a source
// does (null: memory of their own); processes with equal options may share it. Errors: bad_config
// for options that contradict themselves or the data (a requested split is absent, empty or too
// short for one sample), no_input and bad_data from the files.
DataSources open_data(const DataOptions& options, std::shared_ptr<IndexMemory> memory = nullptr);

}  // namespace trireme
