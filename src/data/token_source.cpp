// Opens datasets and puts orders and blends over them.
#include "trireme/data/token_source.hpp"

#include <map>

#include "data/part_sources.hpp"
#include "trireme/base/error.hpp"
#include "trireme/data/blend.hpp"
#include "trireme/data/indexed_dataset.hpp"
#include "trireme/data/llmc_dataset.hpp"
#include "trireme/data/mock_dataset.hpp"

namespace trireme {
namespace {

using Store = std::shared_ptr<const SequenceStore>;

void check(const DataOptions& options) {
  require(options.sequence > 0, ExitCode::bad_config, "the sequence must be positive, not {}",
          options.sequence);
  require(options.vocab > 0, ExitCode::bad_config, "the vocabulary must be positive, not {}",
          options.vocab);
  require(options.order != DataOrder::megatron || options.seed <= UINT32_MAX, ExitCode::bad_config,
          "seed {}: the data order of Megatron takes seeds from 0 to {}", options.seed, UINT32_MAX);
}

// Opens each dataset once, whatever the number of parts that it serves.
class DatasetOpener {
 public:
  DatasetOpener(const DataOptions& options, std::shared_ptr<IndexMemory> memory)
      : options_(options), memory_(std::move(memory)) {}

  const OpenDataset& open(const std::string& path) {
    const auto [place, fresh] = open_.try_emplace(path);
    if (!fresh) return place->second;
    place->second.tokens = store(path);
    if (options_.loss_mask) place->second.flags = flags(path, *place->second.tokens);
    return place->second;
  }

 private:
  Store store(const std::string& path) const {
    if (options_.kind == DataKind::mock) return std::make_shared<MockDataset>(options_.vocab);
    if (names_llmc_files(path)) return std::make_shared<LlmcDataset>(path, options_.vocab, memory_);
    return std::make_shared<IndexedDataset>(path, options_.vocab, memory_);
  }

  Store flags(const std::string& path, const SequenceStore& tokens) const {
    const std::string prefix = path + ".mask";
    auto flags = std::make_shared<IndexedDataset>(prefix, 2, memory_);
    const std::span<const int32_t> mine = flags->sequences().values();
    const std::span<const int32_t> wanted = tokens.sequences().values();
    require(memory_->built() || std::ranges::equal(mine, wanted), ExitCode::bad_data,
            "{}.idx: its sequences are not those of {}.idx: the mask is of another dataset", prefix,
            path);
    return flags;
  }

  const DataOptions& options_;
  std::shared_ptr<IndexMemory> memory_;
  std::map<std::string, OpenDataset> open_;
};

// Opens one part: of each dataset the range that the split gives it, or all of it.
class PartOpener {
 public:
  // `split`: the text in use; empty: datasets are taken whole.
  PartOpener(const DataOptions& options, DatasetOpener& datasets,
             std::shared_ptr<IndexMemory> memory, DataSplit part, std::string split)
      : options_(options),
        datasets_(datasets),
        memory_(std::move(memory)),
        part_(part),
        split_(std::move(split)) {}

  std::unique_ptr<TokenSource> open(const Blend& blend, int64_t requested) const {
    require(requested > 0 || requested == kOneEpoch, ExitCode::bad_config, "{} {} samples wanted",
            requested, name_of(part_));
    const bool alone = blend.paths.size() == 1 && (blend.weights.empty() || split_.empty());
    if (alone) return open_one(blend.paths[0], requested);
    return blend.weights.empty() ? open_all(blend, requested) : open_weighted(blend, requested);
  }

 private:
  std::unique_ptr<TokenSource> open_weighted(const Blend& blend, int64_t requested) const {
    require(requested != kOneEpoch, ExitCode::bad_config,
            "a {} blend with weights has no end that could be reached: set run.evaluate_batches, "
            "or leave the weights out",
            name_of(part_));
    const std::vector<double> weights = normalized(blend.weights);
    const BlendSizes sizes = blend_sizes(weights, requested);
    BlendSource::Parts parts;
    for (size_t d = 0; d < weights.size(); ++d)
      parts.push_back(open_one(blend.paths[d], sizes.prepared[d]));
    BlendOrder order = BlendOrder::weighted(weights, sizes.samples, memory_);
    for (size_t d = 0; d < weights.size(); ++d)
      require(order.used()[d] <= parts[d]->samples(), ExitCode::internal,
              "the {} blend takes {} samples of {}, which has {}", name_of(part_), order.used()[d],
              blend.paths[d], parts[d]->samples());
    return std::make_unique<BlendSource>(std::move(parts), std::move(order));
  }

  // Without weights every dataset serves one pass.
  std::unique_ptr<TokenSource> open_all(const Blend& blend, int64_t requested) const {
    BlendSource::Parts parts;
    std::vector<int64_t> sizes;
    std::vector<double> weights;
    int64_t all = 0;
    for (const std::string& path : blend.paths) {
      parts.push_back(open_one(path, kOneEpoch));
      sizes.push_back(parts.back()->samples());
      weights.push_back(static_cast<double>(sizes.back()));
      all += sizes.back();
    }
    require(requested <= all, ExitCode::bad_config,
            "{} {} samples are wanted, one pass over the {} datasets has {}: give them weights, "
            "and they are repeated as needed",
            requested, name_of(part_), parts.size(), all);
    BlendOrder order = requested == kOneEpoch ? BlendOrder::exhaustive(sizes, memory_)
                                              : BlendOrder::weighted(weights, requested, memory_);
    for (size_t d = 0; d < sizes.size(); ++d)
      require(order.used()[d] <= sizes[d], ExitCode::bad_config,
              "the {} blend takes {} samples of {}, whose one pass has {}: give the datasets "
              "weights, or ask for fewer samples",
              name_of(part_), order.used()[d], blend.paths[d], sizes[d]);
    return std::make_unique<BlendSource>(std::move(parts), std::move(order));
  }

  std::unique_ptr<TokenSource> open_one(const std::string& path, int64_t requested) const {
    const OpenDataset& data = datasets_.open(path);
    return options_.order == DataOrder::megatron ? open_gpt(data, requested)
                                                 : open_windows(data, requested);
  }

  SplitRange range_of(const SequenceStore& store) const {
    const bool by_sequences = options_.order == DataOrder::megatron;
    const int64_t n = by_sequences ? store.sequences().count() : store.sequences().tokens();
    if (split_.empty()) return {true, 0, n};
    const std::array<double, kSplits> fractions = parse_split(split_);
    const auto ranges = by_sequences ? split_sequences(fractions, n) : split_tokens(fractions, n);
    return ranges[static_cast<size_t>(part_)];
  }
  std::string share_text() const {
    return split_.empty() ? std::string("it has") : fmt::format("\"{}\" gives it", split_);
  }

  std::unique_ptr<TokenSource> open_gpt(const OpenDataset& data, int64_t requested) const {
    const SequenceLengths& lengths = data.tokens->sequences();
    const SplitRange range = range_of(*data.tokens);
    const int64_t tokens = lengths.start(range.last) - lengths.start(range.first);
    require(
        tokens > 0, ExitCode::bad_config,
        "{}: the {} split is empty: {} {} of {} sequences (a sequence is never cut): "
        "give it a larger part, cut the text into more documents, use the order \"random\", which "
        "splits by tokens, or ask for no {} samples",
        data.tokens->name(), name_of(part_), share_text(), range.size(), lengths.count(),
        name_of(part_));
    auto source =
        std::make_unique<GptSource>(data,
                                    GptOrder::Options{range, options_.sequence, requested,
                                                      static_cast<uint32_t>(options_.seed)},
                                    memory_);
    require(source->samples() > 0, ExitCode::bad_config,
            "{}: the {} split has {} tokens, one sample takes {}: give it a larger part or shorten "
            "the sequence",
            data.tokens->name(), name_of(part_), tokens, options_.sequence + 1);
    return source;
  }

  std::unique_ptr<TokenSource> open_windows(const OpenDataset& data, int64_t requested) const {
    const SplitRange range = range_of(*data.tokens);
    require(range.size() > options_.sequence, ExitCode::bad_config,
            "{}: the {} split is {}: {} {} of {} tokens, one sample takes {}: give it a "
            "larger part, shorten the sequence, or ask for no {} samples",
            data.tokens->name(), name_of(part_), range.size() == 0 ? "empty" : "too short",
            share_text(), range.size(), data.tokens->sequences().tokens(), options_.sequence + 1,
            name_of(part_));
    return std::make_unique<WindowSource>(data, range, options_.sequence, options_.seed, part_,
                                          requested);
  }

  const DataOptions& options_;
  DatasetOpener& datasets_;
  std::shared_ptr<IndexMemory> memory_;
  DataSplit part_;
  std::string split_;
};

// What each part is made of, and the split in use (empty: whole datasets).
struct Choice {
  std::array<Blend, kSplits> parts;
  std::string split;
};

Choice choose(const DataOptions& options) {
  Choice choice;
  if (options.kind == DataKind::mock) {
    choice.parts.fill({{"mock"}, {}});
    choice.split = "1,1,1";
    return choice;
  }
  if (!options.path.empty()) {
    BlendChoice read = read_blend(options.path);
    const bool whole = !read.whole.paths.empty();
    if (whole) read.parts.fill(read.whole);
    return {std::move(read.parts), whole ? options.split : ""};
  }
  const std::array<const std::string*, kSplits> texts{&options.train_path, &options.validation_path,
                                                      &options.test_path};
  for (size_t i = 0; i < kSplits; ++i) {
    if (texts[i]->empty()) continue;
    choice.parts[i] = read_blend(*texts[i]).whole;
    require(!choice.parts[i].paths.empty(), ExitCode::bad_config,
            "{}: a file for all parts, where the blend of one is expected", *texts[i]);
  }
  return choice;
}

}  // namespace

void TokenSource::flags(int64_t, std::span<int32_t> flags) const {
  std::ranges::fill(flags, 1);
}

DataSources open_data(const DataOptions& options, std::shared_ptr<IndexMemory> memory) {
  check(options);
  if (memory == nullptr) memory = std::make_shared<IndexMemory>();
  DatasetOpener datasets(options, memory);
  const Choice choice = choose(options);
  const std::vector<NamedBlend> named = parse_named_blends(options.validation_sets);
  const auto open = [&](DataSplit part, int64_t requested) -> std::unique_ptr<TokenSource> {
    if (requested == 0) return nullptr;
    const Blend& blend = choice.parts[static_cast<size_t>(part)];
    const bool given =
        !blend.paths.empty() &&
        (choice.split.empty() || parse_split(choice.split)[static_cast<size_t>(part)] > 0);
    if (!given && part == DataSplit::validation && !named.empty()) return nullptr;
    require(!blend.paths.empty(), ExitCode::bad_config,
            "no {} data are named, and {} samples are asked for", name_of(part), name_of(part));
    return PartOpener(options, datasets, memory, part, choice.split).open(blend, requested);
  };
  DataSources sources;
  sources.train = open(DataSplit::train, options.train_samples);
  sources.validation = open(DataSplit::validation, options.validation_samples);
  sources.test = open(DataSplit::test, options.test_samples);
  if (options.validation_samples == 0) return sources;
  const PartOpener whole(options, datasets, memory, DataSplit::validation, "");
  for (const NamedBlend& set : named)
    sources.validation_sets.push_back(
        {set.name, whole.open(set.blend, options.validation_samples)});
  return sources;
}

}  // namespace trireme
