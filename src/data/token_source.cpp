// The two kinds of source (Megatron's order, random windows) over the two kinds of store (files,
// mock).
#include "trireme/data/token_source.hpp"

#include "trireme/base/error.hpp"
#include "trireme/data/indexed_dataset.hpp"
#include "trireme/data/mock_dataset.hpp"
#include "trireme/data/random_windows.hpp"

namespace trireme {
namespace {

using Store = std::shared_ptr<const SequenceStore>;

class GptSource : public TokenSource {
 public:
  GptSource(Store store, const GptOrder::Options& options, DataSplit split)
      : store_(std::move(store)),
        order_(store_->sequences(), options),
        sequences_(options.range.size()),
        split_(split) {}

  int64_t samples() const override { return order_.samples(); }
  void sample(int64_t index, std::span<int32_t> tokens) const override {
    order_.read(*store_, index, tokens);
  }
  std::string description() const override {
    return fmt::format("{}: {} tokens in {} sequences, {} epoch(s) make {} samples{}",
                       name_of(split_), order_.tokens_per_epoch(), sequences_, order_.plan().epochs,
                       samples(),
                       order_.plan().last_epoch_apart ? ", the last epoch shuffled apart" : "");
  }

 private:
  Store store_;
  GptOrder order_;
  int64_t sequences_;
  DataSplit split_;
};

class WindowSource : public TokenSource {
 public:
  WindowSource(Store store, SplitRange range, const DataOptions& options, DataSplit split,
               int64_t samples)
      : store_(std::move(store)),
        windows_(range, options.sequence, options.seed, split),
        tokens_(range.size()),
        sequence_(options.sequence),
        samples_(samples),
        split_(split) {}

  int64_t samples() const override { return samples_; }
  void sample(int64_t index, std::span<int32_t> tokens) const override {
    require(index >= 0 && index < samples_, ExitCode::internal, "sample {} of {}", index, samples_);
    require(std::ssize(tokens) == sequence_ + 1, ExitCode::internal,
            "a sample of {} tokens read into {}", sequence_ + 1, tokens.size());
    store_->read_across(windows_.start(index), tokens);
  }
  std::string description() const override {
    return fmt::format("{}: {} random windows of {} tokens out of {}", name_of(split_), samples_,
                       sequence_, tokens_);
  }

 private:
  Store store_;
  RandomWindows windows_;
  int64_t tokens_, sequence_, samples_;
  DataSplit split_;
};

Store open_store(const DataOptions& options) {
  if (options.kind == DataKind::mock) return std::make_shared<MockDataset>(options.vocab);
  return std::make_shared<IndexedDataset>(options.path, options.vocab);
}

void check(const DataOptions& options) {
  require(options.sequence > 0, ExitCode::bad_config, "the sequence must be positive, not {}",
          options.sequence);
  require(options.vocab > 0, ExitCode::bad_config, "the vocabulary must be positive, not {}",
          options.vocab);
  require(options.order != DataOrder::megatron || options.seed <= UINT32_MAX, ExitCode::bad_config,
          "seed {}: the data order of Megatron takes seeds from 0 to {}", options.seed, UINT32_MAX);
}

// Opens the parts of one store; `text` is the split in use.
class SplitOpener {
 public:
  SplitOpener(const DataOptions& options, Store store, std::string text)
      : options_(options), store_(std::move(store)), text_(std::move(text)) {
    const std::array<double, kSplits> fractions = parse_split(text_);
    ranges_ = options_.order == DataOrder::megatron
                  ? split_sequences(fractions, store_->sequences().count())
                  : split_tokens(fractions, store_->sequences().tokens());
  }

  std::unique_ptr<TokenSource> open(DataSplit split, int64_t requested) const {
    if (requested == 0) return nullptr;
    require(requested > 0 || requested == kOneEpoch, ExitCode::bad_config, "{} {} samples wanted",
            requested, name_of(split));
    const SplitRange range = ranges_[static_cast<size_t>(split)];
    return options_.order == DataOrder::megatron ? open_gpt(split, range, requested)
                                                 : open_windows(split, range, requested);
  }

 private:
  std::unique_ptr<TokenSource> open_gpt(DataSplit split, SplitRange range,
                                        int64_t requested) const {
    const SequenceLengths& lengths = store_->sequences();
    const int64_t tokens = lengths.start(range.last) - lengths.start(range.first);
    require(
        tokens > 0, ExitCode::bad_config,
        "{}: the {} split is empty: \"{}\" gives it {} of {} sequences (a sequence is never cut): "
        "give it a larger part, cut the text into more documents, use the order \"random\", which "
        "splits by tokens, or ask for no {} samples",
        store_->name(), name_of(split), text_, range.size(), lengths.count(), name_of(split));
    auto source =
        std::make_unique<GptSource>(store_,
                                    GptOrder::Options{range, options_.sequence, requested,
                                                      static_cast<uint32_t>(options_.seed)},
                                    split);
    require(source->samples() > 0, ExitCode::bad_config,
            "{}: the {} split has {} tokens, one sample takes {}: give it a larger part or shorten "
            "the sequence",
            store_->name(), name_of(split), tokens, options_.sequence + 1);
    return source;
  }

  std::unique_ptr<TokenSource> open_windows(DataSplit split, SplitRange range,
                                            int64_t requested) const {
    require(
        range.size() > options_.sequence, ExitCode::bad_config,
        "{}: the {} split is {}: \"{}\" gives it {} of {} tokens, one sample takes {}: give it a "
        "larger part, shorten the sequence, or ask for no {} samples",
        store_->name(), name_of(split), range.size() == 0 ? "empty" : "too short", text_,
        range.size(), store_->sequences().tokens(), options_.sequence + 1, name_of(split));
    const int64_t one_pass = (range.size() - 1) / options_.sequence;
    return std::make_unique<WindowSource>(store_, range, options_, split,
                                          requested == kOneEpoch ? one_pass : requested);
  }

  const DataOptions& options_;
  Store store_;
  std::string text_;
  std::array<SplitRange, kSplits> ranges_;
};

}  // namespace

DataSources open_data(const DataOptions& options) {
  check(options);
  const SplitOpener opener(options, open_store(options),
                           options.kind == DataKind::mock ? "1,1,1" : options.split);
  DataSources sources;
  sources.train = opener.open(DataSplit::train, options.train_samples);
  sources.validation = opener.open(DataSplit::validation, options.validation_samples);
  sources.test = opener.open(DataSplit::test, options.test_samples);
  return sources;
}

}  // namespace trireme
