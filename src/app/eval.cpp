// trireme eval CHECKPOINT: validation loss of a checkpoint on a dataset, or a multiple-choice task,
// on any layout. The result is one JSON line on standard output.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/arguments.hpp"
#include "app/checkpoint_arguments.hpp"
#include "app/commands.hpp"
#include "app/start_up.hpp"
#include "trireme/comm/mpi_session.hpp"
#include "trireme/comm/together.hpp"
#include "trireme/config/layout.hpp"
#include "trireme/data/choice_file.hpp"
#include "trireme/data/targets.hpp"
#include "trireme/train/evaluation.hpp"
#include "trireme/train/shared_data.hpp"
#include "trireme/train/version.hpp"

namespace trireme::app {
namespace {

constexpr const char* kUsage =
    "trireme eval CHECKPOINT [--dataset PREFIX] [--part NAME] [--batches N]\n"
    "  CHECKPOINT         a .h5 file, or the directory of a run (its newest checkpoint)\n"
    "  (nothing else)     the loss that the run's own validation would have: its windows, its "
    "batches\n"
    "  --dataset          a dataset or a blend as data.path takes it, evaluated whole, once\n"
    "  --part             train, validation (default), test, or one of the run's validation_sets\n"
    "  --batches          global batches (default: the run's run.evaluate_batches); 0: all\n"
    "  --tokenizer        of the data; the bytes tokenizer also gives bits per byte\n"
    "trireme eval CHECKPOINT --task hellaswag --file FILE.bin [--examples N]\n"
    "  --file             llm.c's evaluation file; --examples: only the first N\n"
    "  --section.key=V    over the checkpoint's deck, as --grid.tp=2 --batch.micro=16";

class Evaluation {
 public:
  Evaluation(const std::vector<std::string>& words, MpiSession& session)
      : split_(words),
        arguments_(split_.options,
                   {"dataset", "part", "batches", "tokenizer", "task", "file", "examples"}, kUsage),
        session_(session),
        world_(session.world()),
        checkpoint_(open_checkpoint_deck(world_, checkpoint_path(), split_.overrides,
                                         [this](Settings& settings) { adjust(settings); })),
        settings_(checkpoint_.deck.settings),
        log_(world_.rank(), settings_.log.level) {}

  void run() {
    const auto start = std::chrono::steady_clock::now();
    if (arguments_.has("task")) settings_.batch.global = choice_batch();
    Device device(device_options(session_, settings_));
    const ProcessGrid grid(world_, checkpoint_.grid, settings_.model.kv_heads, device);
    Evaluator evaluator(settings_, grid, device);
    result_["checkpoint"] = checkpoint_.file.string();
    result_["step"] = checkpoint_.header.step;
    if (!arguments_.has("task")) open_source(evaluator);
    evaluator.load(checkpoint_.file, log_);
    log_.info("{}: step {}; {}; {}", checkpoint_.file.string(), checkpoint_.header.step,
              checkpoint_.grid.text(), device.description());
    if (arguments_.has("task"))
      choose(evaluator);
    else
      measure(evaluator);
    result_["seconds"] =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (world_.rank() == 0) fmt::print("{}\n", result_.dump());
  }

 private:
  std::string checkpoint_path() const {
    require(arguments_.positions().size() == 1, ExitCode::usage,
            "one checkpoint is needed\nusage: {}", kUsage);
    const bool task = arguments_.has("task");
    const std::string name = task ? arguments_.one("task") : "hellaswag";
    require(name == "hellaswag", ExitCode::usage, "--task {} is not known: hellaswag is\nusage: {}",
            name, kUsage);
    require(task == arguments_.has("file"), ExitCode::usage,
            "--task and --file go together\nusage: {}", kUsage);
    require(!task ||
                !(arguments_.has("dataset") || arguments_.has("part") || arguments_.has("batches")),
            ExitCode::usage, "--task takes no dataset\nusage: {}", kUsage);
    return arguments_.positions()[0];
  }

  void adjust(Settings& settings) {
    settings.batch.ramp_start = settings.batch.ramp_increment = settings.batch.ramp_samples = 0;
    if (!arguments_.has("task")) return;
    examples_ = read_choices(arguments_.one("file"), settings.model.vocab);
    const auto wanted = static_cast<size_t>(
        arguments_.number("examples", 1, static_cast<int64_t>(examples_.size())));
    examples_.resize(std::min(wanted, examples_.size()));
    const bool table = settings.model.family == Family::gpt2;
    int64_t longest = 0;
    for (size_t i = 0; i < examples_.size(); ++i) {
      longest = std::max(longest, examples_[i].longest());
      require(!table || examples_[i].longest() - 1 <= settings.model.positions, ExitCode::bad_data,
              "{}: example {} has {} tokens, the model {} positions", arguments_.one("file"), i,
              examples_[i].longest(), settings.model.positions);
    }
    settings.batch.sequence = std::max<int64_t>(1, longest - 1);
    settings.batch.global = settings.batch.micro * world_.size();
    settings.grid.sequence_parallel = false;
  }

  // Enough rows to fill the pipeline.
  int64_t choice_batch() const {
    return settings_.batch.micro * checkpoint_.grid.dp * 2 * checkpoint_.grid.pp;
  }

  void open_source(const Evaluator& evaluator) {
    DataOptions options = data_options(settings_);
    const bool whole = arguments_.has("dataset");
    if (whole) {
      options.kind = DataKind::indexed;
      options.path = options.train_path = options.validation_sets = "";
      options.validation_path = arguments_.one("dataset");
    }
    const std::string part = arguments_.optional("part").value_or("validation");
    const int64_t batches =
        arguments_.number("batches", 0, whole ? 0 : settings_.run.evaluate_batches);
    const int64_t wanted = batches == 0 ? kOneEpoch : batches * settings_.batch.global;
    (part == "train"  ? options.train_samples
     : part == "test" ? options.test_samples
                      : options.validation_samples) = wanted;
    sources_ = open_shared_data(options, world_, evaluator.reads(), log_);
    source_ = part == "train"        ? sources_.train.get()
              : part == "test"       ? sources_.test.get()
              : part == "validation" ? sources_.validation.get()
                                     : nullptr;
    for (const DataSources::Named& set : sources_.validation_sets)
      if (set.name == part) source_ = set.source.get();
    samples_ = source_ == nullptr ? 0 : batches == 0 ? source_->samples() : wanted;
    world_.require_all(source_ != nullptr || !evaluator.reads(), ExitCode::usage,
                       fmt::format("there is no part \"{}\": it is train, validation, test or the "
                                   "name of one of data.validation_sets",
                                   part));
    samples_ = world_.max(samples_);
    if (arguments_.has("part")) result_["part"] = part;
    result_["dataset"] = whole                                   ? options.validation_path
                         : settings_.data.kind == DataKind::mock ? "mock"
                         : settings_.data.path.empty()           ? settings_.data.validation_path
                                                                 : settings_.data.path;
  }

  void measure(Evaluator& evaluator) {
    const auto start = std::chrono::steady_clock::now();
    const LossSum sum = evaluator.run(source_, samples_);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    result_["samples"] = samples_;
    result_["tokens"] = std::llround(sum.tokens);
    result_["loss"] = sum.mean();
    result_["perplexity"] = std::exp(sum.mean());
    if (world_.rank() == 0) {
      const int64_t bytes = counted_bytes();
      if (bytes > 0)
        result_["bits_per_byte"] = sum.loss / std::log(2.0) / static_cast<double>(bytes);
    }
    result_["tokens_per_second"] =
        static_cast<double>(samples_ * settings_.batch.sequence) / std::max(seconds, 1e-9);
  }

  // Counted targets that are bytes of the text; 0 where the tokens are not known to be bytes.
  int64_t counted_bytes() const {
    const std::string named = arguments_.optional("tokenizer").value_or(settings_.data.tokenizer);
    const bool plain = named.empty() && settings_.model.vocab == ByteTokenizer().vocab() &&
                       settings_.data.eod == ByteTokenizer::kEndOfDocument;
    if (named != "bytes" && !plain) return 0;
    const auto length = static_cast<size_t>(settings_.batch.sequence);
    std::vector<int32_t> tokens(length + 1), inputs(length), targets(length);
    std::vector<float> mask(length);
    const TargetOptions options{static_cast<int32_t>(settings_.data.eod),
                                settings_.data.eod_mask_loss};
    int64_t bytes = 0;
    for (int64_t i = 0; i < samples_; ++i) {
      source_->sample(i, tokens);
      make_targets(tokens, options, inputs, targets, mask);
      if (source_->flagged()) {
        source_->flags(i, tokens);
        leave_out(tokens, mask);
      }
      for (size_t k = 0; k < length; ++k)
        if (mask[k] > 0 && targets[k] < ByteTokenizer::kEndOfDocument) ++bytes;
    }
    return bytes;
  }

  void choose(Evaluator& evaluator) {
    std::vector<ScoredText> texts;
    for (const ChoiceExample& example : examples_) {
      for (const std::vector<int32_t>& completion : example.completions) {
        ScoredText& text = texts.emplace_back();
        text.tokens = example.context;
        text.tokens.insert(text.tokens.end(), completion.begin(), completion.end());
        text.counted_from = std::ssize(example.context);
      }
    }
    const std::vector<double> losses = evaluator.score(texts);
    int64_t right = 0;
    auto at = losses.begin();
    for (const ChoiceExample& example : examples_) {
      const auto end = at + std::ssize(example.completions);
      if (best_completion(example, {at, end}) == example.label) ++right;
      at = end;
    }
    result_["task"] = "hellaswag";
    result_["examples"] = examples_.size();
    result_["correct"] = right;
    result_["accuracy"] = static_cast<double>(right) / static_cast<double>(examples_.size());
  }

  SplitWords split_;
  Arguments arguments_;
  MpiSession& session_;
  const Communicator& world_;
  std::vector<ChoiceExample> examples_;
  CheckpointDeck checkpoint_;
  Settings& settings_;
  Log log_;
  DataSources sources_;
  const TokenSource* source_ = nullptr;  // on ranks that read
  int64_t samples_ = 0;
  nlohmann::ordered_json result_;
};

}  // namespace

int eval(int argc, char** argv) {
  const std::vector<std::string> words(argv + 2, argv + argc);
  const LauncherWorld launcher = read_launcher();
  MpiSession session(argc, argv);
  return run_guarded(session, [&] {
    require_same_program(session);
    require_one_job(session, launcher);
    Evaluation(words, session).run();
    return static_cast<int>(ExitCode::ok);
  });
}

}  // namespace trireme::app
