// trireme tokenize: text and JSONL to a token dataset, over all ranks of an MPI job (or one
// process), and the merging of datasets.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>

#include "app/arguments.hpp"
#include "app/commands.hpp"
#include "app/start_up.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/mpi_session.hpp"
#include "trireme/comm/together.hpp"
#include "trireme/data/indexed_writer.hpp"
#include "trireme/data/tokenize_text.hpp"

namespace trireme::app {
namespace {

constexpr const char* kUsage =
    "trireme tokenize --input FILE... --tokenizer NAME_OR_PATH --output PREFIX\n"
    "  --input            text or JSONL (.jsonl, .ndjson, .json), also as .gz or .zst; - is "
    "standard input\n"
    "  --tokenizer        bytes, a directory, tokenizer.json, vocab.json, a .tiktoken file or "
    "tokenizer.model\n"
    "  --format           text or jsonl (default: by the file's name)\n"
    "  --key              of a document in JSONL (default: text)\n"
    "  --prompt-key       of a text before it that training is not to learn (PREFIX.mask says so)\n"
    "  --document-mark    line that ends a document of plain text (default: the end of the file)\n"
    "  --bad-lines        stop (default) or skip: lines of JSONL that hold no text under the key\n"
    "  --append-eod       yes (default) or no: one end-of-document id behind each document\n"
    "  --eod              the token that ends a document (default: the tokenizer's own)\n"
    "  --special-tokens   text (default) or marks: what <|endoftext|> and the like in a document "
    "become\n"
    "  --longest-document bytes of a line or document (default: 1073741824)\n"
    "  --threads          of each rank (default: 1)\n"
    "trireme tokenize --merge PREFIX... --output PREFIX: one dataset of several, in this order";

constexpr std::chrono::seconds kRound{1};  // between two agreements

// One of two words.
bool choice(const Arguments& arguments, const std::string& option, const std::string& first,
            const std::string& second) {
  const std::string value = arguments.optional(option).value_or(first);
  require(value == first || value == second, ExitCode::usage, "--{} is {} or {}\nusage: {}", option,
          first, second, kUsage);
  return value == second;
}

struct Request {
  explicit Request(const Arguments& arguments) {
    TokenizerOptions how;
    how.end_of_document = arguments.optional("eod").value_or("");
    if (choice(arguments, "special-tokens", "text", "marks"))
      how.special = TokenizerOptions::Special::marks;
    tokenizer = make_tokenizer(arguments.one("tokenizer"), how);
    options.inputs = arguments.all("input");
    options.output = arguments.one("output");
    options.tokenizer = tokenizer.get();
    options.document_mark = arguments.optional("document-mark");
    if (arguments.has("format"))
      options.format =
          choice(arguments, "format", "text", "jsonl") ? TextFormat::jsonl : TextFormat::text;
    options.key = arguments.optional("key").value_or("text");
    options.prompt_key = arguments.optional("prompt-key");
    if (choice(arguments, "bad-lines", "stop", "skip")) options.bad_lines = BadLines::skip;
    options.append_end = !choice(arguments, "append-eod", "yes", "no");
    options.threads = static_cast<int>(std::min<int64_t>(arguments.number("threads", 1, 1), 1024));
    options.longest_document = arguments.number("longest-document", 1, options.longest_document);
  }
  std::unique_ptr<Tokenizer> tokenizer;
  TokenizeOptions options;
};

// On a terminal one line that is written over; elsewhere (mpirun takes the terminal away) a line
// every ten seconds.
class Progress {
 public:
  Progress(bool shown, int64_t all_bytes)
      : shown_(shown), terminal_(::isatty(STDERR_FILENO) == 1), all_(all_bytes) {}
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  void show(int64_t done) {
    const double now = seconds();
    if (!shown_ || (!terminal_ && now < next_)) return;
    next_ = now + 10;
    const double rate = static_cast<double>(done) / std::max(now, 1e-9);
    const double part = all_ == 0 ? 0 : static_cast<double>(done) / static_cast<double>(all_);
    const auto bars = static_cast<size_t>(std::clamp(part, 0.0, 1.0) * 30);
    const double left =
        static_cast<double>(std::max<int64_t>(all_ - done, 0)) / std::max(rate, 1.0);
    fmt::print(stderr, "{}[{}{}] {:5.1f} %  {:.1f} MB/s  {:.0f} s left{}", terminal_ ? "\r" : "",
               std::string(bars, '#'), std::string(30 - bars, '.'), 100 * part, rate / 1e6, left,
               terminal_ ? "   " : "\n");
  }
  void end() const {
    if (shown_ && terminal_) fmt::print(stderr, "\n");
  }

 private:
  bool shown_, terminal_;
  int64_t all_;
  double next_ = 10;  // seconds
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

TokenizeReport sum(const TokenizeReport& mine, const Communicator& world) {
  TokenizeReport all = mine;
  for (int64_t TokenizeReport::*count :
       {&TokenizeReport::files, &TokenizeReport::bytes, &TokenizeReport::documents,
        &TokenizeReport::empty_documents, &TokenizeReport::tokens, &TokenizeReport::blank_lines,
        &TokenizeReport::malformed_lines, &TokenizeReport::lines_without_key,
        &TokenizeReport::lines_without_text})
    all.*count = world.sum(mine.*count);
  return all;
}

void print_summary(const std::string& output, const TokenizeReport& all, double seconds) {
  fmt::print(
      "{}: {} tokens in {} documents from {} files ({} bytes; {} empty documents left out)\n",
      output, all.tokens, all.documents, all.files, all.bytes, all.empty_documents);
  if (all.blank_lines + all.malformed_lines + all.lines_without_key + all.lines_without_text > 0)
    fmt::print(
        "lines left out: {} blank, {} not JSON objects, {} without the key, {} without text\n",
        all.blank_lines, all.malformed_lines, all.lines_without_key, all.lines_without_text);
  fmt::print("{:.1f} s, {:.1f} MB/s\n", seconds,
             static_cast<double>(all.bytes) / 1e6 / std::max(seconds, 1e-9));
}

void join(TokenizeWork& work, const Communicator& world) {
  std::string files;  // one a line
  together(world, [&] {
    if (world.rank() > 0) return;
    for (const std::string& file : work.begin_join()) files += file + "\n";
  });
  files = world.broadcast(files, 0);
  together(world, [&] {
    std::vector<std::string> paths;
    std::istringstream lines(files);
    for (std::string path; std::getline(lines, path);) paths.push_back(path);
    work.bring_part(paths);
  });
  together(world, [&] {
    if (world.rank() == 0) work.finish_join();
  });
}

// All ranks end a round at the same time, not behind the same bytes: none waits for a text that is
// slower than its own. False once nothing is left.
bool advance_for(std::chrono::duration<double> round, TokenizeWork& work) {
  constexpr int64_t kStep = int64_t{1} << 20;  // bytes
  const auto end = std::chrono::steady_clock::now() + round;
  bool more = true;
  while (more && std::chrono::steady_clock::now() < end) more = work.advance(kStep);
  return more;
}

void tokenize_together(const Arguments& arguments, const Communicator& world) {
  std::unique_ptr<Request> request;
  std::unique_ptr<TokenizeWork> work;
  together(world, [&] {
    request = std::make_unique<Request>(arguments);
    work = std::make_unique<TokenizeWork>(request->options, Share{world.rank(), world.size()});
  });
  Progress progress(world.rank() == 0, work->all_bytes());
  for (bool more = true; more;) {
    bool mine = false;
    together(world, [&] { mine = advance_for(kRound, *work); });
    progress.show(world.sum(work->done_bytes()));
    more = world.any(mine);
  }
  progress.end();
  const TokenizeReport all = sum(work->report(), world);
  world.require_all(all.documents > 0, ExitCode::bad_data,
                    fmt::format("no document in {} file(s) of {} bytes: nothing was written",
                                all.files, all.bytes));
  together(world, [&] { work->commit(); });
  join(*work, world);
  if (world.rank() == 0) print_summary(request->options.output, all, progress.seconds());
}

void merge(const Arguments& arguments, const Communicator& world) {
  together(world, [&] {
    if (world.rank() > 0) return;
    const std::string output = arguments.one("output");
    merge_datasets(arguments.all("merge"), output);
    const IndexedDataset whole(output);
    fmt::print("{}: {} tokens in {} documents from {} datasets\n", output, whole.tokens(),
               whole.documents(), arguments.all("merge").size());
  });
}

}  // namespace

int tokenize(int argc, char** argv) {
  const std::vector<std::string> words(argv + 2, argv + argc);
  const LauncherWorld launcher = read_launcher();
  MpiSession session(argc, argv);
  return run_guarded(session, [&] {
    require_same_program(session);
    require_one_job(session, launcher);
    const Arguments arguments(words,
                              {"input", "tokenizer", "output", "document-mark", "format", "key",
                               "prompt-key", "bad-lines", "append-eod", "eod", "special-tokens",
                               "longest-document", "threads", "merge"},
                              kUsage);
    if (arguments.has("merge")) {
      merge(arguments, session.world());
    } else {
      tokenize_together(arguments, session.world());
    }
    return static_cast<int>(ExitCode::ok);
  });
}

}  // namespace trireme::app
