// trireme generate CHECKPOINT: text from a checkpoint, on any tp x pp layout; dp shares out
// prompts.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "app/arguments.hpp"
#include "app/checkpoint_arguments.hpp"
#include "app/commands.hpp"
#include "app/prompts.hpp"
#include "app/start_up.hpp"
#include "trireme/base/checked.hpp"
#include "trireme/comm/mpi_session.hpp"
#include "trireme/comm/together.hpp"
#include "trireme/config/layout.hpp"
#include "trireme/data/text_stream.hpp"
#include "trireme/io/checkpoint.hpp"
#include "trireme/train/version.hpp"

namespace trireme::app {
namespace {

constexpr const char* kUsage =
    "trireme generate CHECKPOINT [--prompt TEXT... | --prompt-file FILE] [options]\n"
    "  CHECKPOINT         a .h5 file, or the directory of a run (its newest checkpoint)\n"
    "  --prompt           one or more texts; --prompt-file: one a line, .jsonl under --key "
    "(default: "
    "prompt); - is standard input\n"
    "  --tokens           most new tokens of a prompt (default: 256)\n"
    "  --temperature      0 (default): always the likeliest token\n"
    "  --top-k            draw among the k likeliest; --top-p: among the likeliest that hold this "
    "probability\n"
    "  --seed             of the draws (default: 1234)\n"
    "  --context          most tokens of prompt and continuation (default: what the model was "
    "trained on)\n"
    "  --batch            prompts at a time (default: 8)\n"
    "  --tokenizer        a name or path as for trireme tokenize (default: the checkpoint's)\n"
    "  --eod              the token that ends a document; --ignore-eod: go on behind it\n"
    "  --special-tokens   text (default) or marks: what <|endoftext|> and the like in a prompt "
    "are\n"
    "  --format           text (default) or jsonl: one object a prompt\n"
    "  --invalid-bytes    replace (default) or keep: output that is no UTF-8\n"
    "  --section.key=V    over the checkpoint's deck, as --grid.tp=2 --precision.compute=bf16";

double real_number(const Arguments& arguments, const std::string& option, double otherwise,
                   double low, double high) {
  if (!arguments.has(option)) return otherwise;
  const std::string text = arguments.one(option);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  require(!text.empty() && *end == '\0' && std::isfinite(value) && value >= low && value <= high,
          ExitCode::usage, "--{} = {}: a number from {} to {} is needed\nusage: {}", option, text,
          low, high, kUsage);
  return value;
}

bool second(const Arguments& arguments, const std::string& option, const std::string& first,
            const std::string& other) {
  const std::string value = arguments.optional(option).value_or(first);
  require(value == first || value == other, ExitCode::usage, "--{} is {} or {}\nusage: {}", option,
          first, other, kUsage);
  return value == other;
}

struct Request {
  explicit Request(const Arguments& arguments)
      : jsonl(second(arguments, "format", "text", "jsonl")),
        invalid(second(arguments, "invalid-bytes", "replace", "keep") ? InvalidBytes::keep
                                                                      : InvalidBytes::replace) {
    require(arguments.positions().size() == 1, ExitCode::usage,
            "one checkpoint is needed\nusage: {}", kUsage);
    checkpoint = arguments.positions()[0];
    sampling.temperature = real_number(arguments, "temperature", 0, 0, 1e6);
    sampling.top_k = arguments.number("top-k", 0, 0);
    sampling.top_p = real_number(arguments, "top-p", 1, 0, 1);
    sampling.seed = static_cast<uint64_t>(arguments.number("seed", 0, 1234));
    max_tokens = arguments.number("tokens", 1, 256);
    batch = arguments.number("batch", 1, 8);
    stops = !arguments.has("ignore-eod");
    tokenizer = arguments.optional("tokenizer").value_or("");
    how.end_of_document = arguments.optional("eod").value_or("");
    if (second(arguments, "special-tokens", "text", "marks"))
      how.special = TokenizerOptions::Special::marks;
  }
  std::string checkpoint, tokenizer;
  TokenizerOptions how;
  Sampling sampling;
  int64_t max_tokens = 0, batch = 0;
  bool stops = true, jsonl = false;
  InvalidBytes invalid;
};

// The longest sequence: the position table's length, or the training length of a rotary model.
int64_t context_of(const Arguments& arguments, const Settings& settings) {
  const bool table = settings.model.family == Family::gpt2;
  const int64_t known = table ? settings.model.positions : settings.batch.sequence;
  const int64_t context = arguments.number("context", 2, known);
  require(!table || context <= known, ExitCode::usage,
          "--context = {}: this model has a table of {} positions", context, known);
  return context;
}

void write_out(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

const char* name_of(Ending ending) {
  switch (ending) {
    case Ending::stop:
      return "end of document";
    case Ending::max_tokens:
      return "most tokens";
    case Ending::capacity:
      break;
  }
  return "end of context";
}

// Prints completions in the order of the prompts, the first unfinished one as it grows.
class Printer {
 public:
  Printer(const Request& request, const std::vector<std::string>& texts,
          const std::vector<Prompt>& prompts, const Tokenizer& tokenizer)
      : request_(request), texts_(texts), prompts_(prompts) {
    for (const Prompt& prompt : prompts)
      streams_.emplace_back(tokenizer, prompt.tokens, request.invalid);
    parts_.resize(prompts.size());
    if (!request_.jsonl) open();
  }

  void token(size_t prompt, int32_t token) {
    const std::string text = streams_[prompt].push(token);
    if (prompt == shown_ && !request_.jsonl)
      write_out(text);
    else
      parts_[prompt] += text;
  }
  // In order.
  void finish(size_t prompt, const Completion& completion) {
    const std::string rest = streams_[prompt].finish();
    if (request_.jsonl) return write_out(json_line(prompt, completion, parts_[prompt] + rest));
    if (prompt > shown_) {
      shown_ = prompt;
      open();
      write_out(parts_[prompt]);
    }
    write_out(rest + "\n");
  }

 private:
  void open() const {
    if (texts_.size() > 1)
      write_out(fmt::format("{}--- prompt {} of {} ---\n", shown_ > 0 ? "\n" : "", shown_ + 1,
                            texts_.size()));
    write_out(request_.invalid == InvalidBytes::keep ? texts_[shown_] : as_utf8(texts_[shown_]));
  }
  std::string json_line(size_t prompt, const Completion& completion,
                        const std::string& text) const {
    nlohmann::ordered_json json;
    json["prompt"] = as_utf8(texts_[prompt]);
    json["text"] = as_utf8(text);
    json["prompt_tokens"] = prompts_[prompt].tokens.size();
    json["tokens"] = completion.tokens;
    json["ended_by"] = name_of(completion.ending);
    return json.dump() + "\n";
  }

  const Request& request_;
  const std::vector<std::string>& texts_;
  const std::vector<Prompt>& prompts_;
  std::vector<TextStream> streams_;
  std::vector<std::string> parts_;  // what cannot be shown yet
  size_t shown_ = 0;
};

// What one prompt became, for the ranks that did not make it.
std::string pack(const Completion& completion) {
  std::string bytes(1, static_cast<char>(completion.ending));
  bytes.append(reinterpret_cast<const char*>(completion.tokens.data()),
               completion.tokens.size() * sizeof(int32_t));
  return bytes;
}
Completion unpack_completion(const std::string& bytes) {
  Completion completion;
  completion.ending = static_cast<Ending>(bytes[0]);
  completion.tokens.resize((bytes.size() - 1) / sizeof(int32_t));
  std::memcpy(completion.tokens.data(), bytes.data() + 1, bytes.size() - 1);
  return completion;
}

// Collective. The completions of all replicas, in the order of the prompts: replica r has prompts
// r, r + dp, ...
std::vector<Completion> collect(const Communicator& world, const GridShape& grid,
                                const std::vector<Completion>& mine, size_t prompts) {
  const GridCoord here = coord_of(world.rank(), grid);
  std::vector<Completion> all;
  for (size_t i = 0; i < prompts; ++i) {
    const GridCoord owner{0, 0, static_cast<int>(i % static_cast<size_t>(grid.dp)), 0};
    const bool own = here.dp == owner.dp;
    const std::string bytes = own ? pack(mine[i / static_cast<size_t>(grid.dp)]) : "";
    all.push_back(unpack_completion(world.broadcast(bytes, rank_of(owner, grid))));
  }
  return all;
}

class Generation {
 public:
  Generation(const std::vector<std::string>& words, MpiSession& session)
      : split_(words),
        arguments_(split_.options,
                   {"prompt", "prompt-file", "key", "tokens", "temperature", "top-k", "top-p",
                    "seed", "context", "batch", "tokenizer", "eod", "ignore-eod", "special-tokens",
                    "format", "invalid-bytes"},
                   kUsage),
        request_(arguments_),
        session_(session),
        world_(session.world()),
        checkpoint_(open_checkpoint_deck(world_, request_.checkpoint, split_.overrides,
                                         [this](Settings& settings) { adjust(settings); })),
        settings_(checkpoint_.deck.settings),
        log_(world_.rank(), settings_.log.level) {}

  void run() {
    read();
    Device device(device_options(session_, settings_));
    const ProcessGrid grid(world_, checkpoint_.grid, settings_.model.kv_heads, device);
    Generator generator(model_shape(settings_), grid, device, options());
    load_checkpoint({world_, device.compute(), log_}, checkpoint_.file,
                    generator.parameters().value_slices("weights/"));
    log_.info("{}: step {}, {} parameters, {}; {}; {}", checkpoint_.file.string(),
              checkpoint_.header.step, model_shape(settings_).parameters(),
              trireme::name_of(model_shape(settings_).compute), checkpoint_.grid.text(),
              device.description());
    generate(generator);
  }

 private:
  // One row at a time and no more of training than the model needs.
  void adjust(Settings& settings) const {
    settings.batch = {.sequence = settings.batch.sequence, .global = world_.size(), .micro = 1};
    settings.grid.cp = settings.grid.virtual_stages = 1;
    settings.grid.sequence_parallel = false;
  }

  // Rank 0 reads and encodes; all get the ids.
  void read() {
    context_ = context_of(arguments_, settings_);
    together(world_, [&] {
      if (world_.rank() > 0) return;
      tokenizer_ = tokenizer_of(checkpoint_, request_.tokenizer, request_.how);
      texts_ = read_prompts(arguments_);
      prompts_ = encode_prompts(texts_, *tokenizer_, context_);
      if (request_.stops) stop_ = tokenizer_->end_of_document();
    });
    prompts_ = unpack(world_.broadcast(app::pack(prompts_), 0));
    stop_ = static_cast<int32_t>(world_.max(int64_t{stop_}));
  }

  GeneratorOptions options() const {
    size_t longest = 0;
    for (const Prompt& prompt : prompts_) longest = std::max(longest, prompt.tokens.size());
    GeneratorOptions options;
    options.capacity =
        std::min(context_, static_cast<int64_t>(longest) + std::min(request_.max_tokens, context_));
    const auto share = ceil_div(static_cast<int64_t>(prompts_.size()), checkpoint_.grid.dp);
    options.sequences = std::min(request_.batch, share);
    require(options.capacity < (int64_t{1} << 31) / options.sequences, ExitCode::usage,
            "{} sequences of {} tokens are too many for one cache: lower --batch",
            options.sequences, options.capacity);
    options.max_tokens = request_.max_tokens;
    if (stop_ >= 0) options.stop = stop_;
    options.sampling = request_.sampling;
    return options;
  }

  void generate(Generator& generator) {
    const GridShape& shape = checkpoint_.grid;
    const GridCoord here = coord_of(world_.rank(), shape);
    std::vector<Prompt> mine;
    for (auto i = static_cast<size_t>(here.dp); i < prompts_.size();
         i += static_cast<size_t>(shape.dp))
      mine.push_back(prompts_[i]);
    std::optional<Printer> printer;
    if (world_.rank() == 0) printer.emplace(request_, texts_, prompts_, *tokenizer_);
    Generator::OnToken on_token;
    if (printer && shape.dp == 1)
      on_token = [&](size_t prompt, int32_t token) { printer->token(prompt, token); };
    const auto start = std::chrono::steady_clock::now();
    const std::vector<Completion> own = generator.run(mine, on_token);
    const double seconds =
        world_.max(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    const std::vector<Completion> all = collect(world_, shape, own, prompts_.size());
    if (!printer) return;
    for (size_t i = 0; i < all.size(); ++i) {
      if (shape.dp > 1)
        for (const int32_t token : all[i].tokens) printer->token(i, token);
      printer->finish(i, all[i]);
    }
    report(all, seconds);
  }

  void report(const std::vector<Completion>& all, double seconds) const {
    size_t made = 0, taken = 0, ended = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      made += all[i].tokens.size();
      taken += prompts_[i].tokens.size();
      if (all[i].ending == Ending::stop) ++ended;
    }
    log_.info(
        "{} tokens behind {} prompt tokens in {:.2f} s: {:.1f} tokens/s; {} of {} ended by "
        "themselves",
        made, taken, seconds, static_cast<double>(made) / std::max(seconds, 1e-9), ended,
        all.size());
  }

  SplitWords split_;
  Arguments arguments_;
  Request request_;
  MpiSession& session_;
  const Communicator& world_;
  CheckpointDeck checkpoint_;
  const Settings& settings_;
  Log log_;
  int64_t context_ = 0;
  std::unique_ptr<Tokenizer> tokenizer_;  // rank 0
  std::vector<std::string> texts_;        // rank 0
  std::vector<Prompt> prompts_;
  int32_t stop_ = -1;
};

}  // namespace

int generate(int argc, char** argv) {
  const std::vector<std::string> words(argv + 2, argv + argc);
  const LauncherWorld launcher = read_launcher();
  MpiSession session(argc, argv);
  return run_guarded(session, [&] {
    require_same_program(session);
    require_one_job(session, launcher);
    Generation(words, session).run();
    return static_cast<int>(ExitCode::ok);
  });
}

}  // namespace trireme::app
