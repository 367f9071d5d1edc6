// trireme tokenize: text and JSONL to a token dataset, over all ranks of an MPI job (or one
// process), and the merging of datasets.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <sstream>
#include <type_traits>

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

constexpr std::chrono::seconds kRound{2};  // between two agreements

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

// Collective. Everybody's values at every rank.
template <class T>
std::vector<std::vector<T>> gather(std::span<const T> mine, const Communicator& world) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto bytes = std::as_bytes(mine);
  std::vector<std::vector<T>> all;
  for (const std::string& values :
       world.gather_all({reinterpret_cast<const char*>(bytes.data()), bytes.size()})) {
    all.emplace_back(values.size() / sizeof(T));
    std::ranges::copy(values, reinterpret_cast<char*>(all.back().data()));
  }
  return all;
}

// How a rank stands between two rounds.
struct Standing {
  int64_t left = 0;   // bytes of the pieces it has taken
  double rate = 8e6;  // bytes a second in the last round; before it a cautious guess
  bool busy = false;

  double seconds_left() const { return static_cast<double>(left) / std::max(rate, 1.0); }
};

// Gives pieces of the text to the ranks that would run out of work first, so that all end at about
// the same time.
class Dealer {
 public:
  Dealer(TokenizeWork& work, const Communicator& world) : work_(work), world_(world) {}

  // Collective. False once all is done on all ranks.
  bool deal(const Standing& mine) {
    std::vector<Standing> all;
    for (const auto& one : gather(std::span(&mine, 1), world_)) all.push_back(one.front());
    for (; next_ < work_.pieces(); ++next_) {
      const auto first = std::ranges::min_element(all, {}, &Standing::seconds_left);
      if (first->seconds_left() >= kAhead) break;
      // The launcher hands standard input to rank 0.
      const int rank =
          work_.reads_standard_input(next_) ? 0 : static_cast<int>(first - all.begin());
      all[static_cast<size_t>(rank)].left += work_.bytes_of(next_);
      all[static_cast<size_t>(rank)].busy = true;
      if (rank == world_.rank()) work_.take(next_);
    }
    return std::ranges::any_of(all, &Standing::busy);
  }

 private:
  static constexpr double kAhead = 3;  // seconds: longer than a round
  TokenizeWork& work_;
  const Communicator& world_;
  int next_ = 0;
};

// All ranks end a round at the same time, not behind the same bytes: none waits for a text that is
// slower than its own.
Standing advance_for(std::chrono::duration<double> round, TokenizeWork& work) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kStep = int64_t{1} << 18;  // bytes
  const auto start = Clock::now();
  const int64_t before = work.done_bytes();
  Standing mine{.busy = true};
  while (mine.busy && Clock::now() < start + round) mine.busy = work.advance(kStep);
  mine.left = work.left_bytes();
  const auto bytes = static_cast<double>(work.done_bytes() - before);
  if (bytes > 0) mine.rate = bytes / std::chrono::duration<double>(Clock::now() - start).count();
  return mine;
}

// Collective. Tells all what is finished, and brings into place what can be.
void join_finished(TokenizeWork& work, const Communicator& world) {
  const std::vector<PieceSize> mine = work.finished();
  const auto all = gather(std::span<const PieceSize>(mine), world);
  together(world, [&] {
    for (int rank = 0; rank < world.size(); ++rank)
      work.learn(rank, all[static_cast<size_t>(rank)]);
    work.bring();
  });
}

void begin_join(TokenizeWork& work, const Communicator& world) {
  std::string files;  // one a line
  together(world, [&] {
    if (world.rank() > 0) return;
    for (const std::string& file : work.begin_join()) files += file + "\n";
  });
  std::istringstream lines(world.broadcast(files, 0));
  std::vector<std::string> paths;
  for (std::string path; std::getline(lines, path);) paths.push_back(path);
  work.join_into(paths);
}

void tokenize_together(const Arguments& arguments, const Communicator& world) {
  std::unique_ptr<Request> request;
  std::unique_ptr<TokenizeWork> work;
  together(world, [&] {
    request = std::make_unique<Request>(arguments);
    work = std::make_unique<TokenizeWork>(request->options, Share{world.rank(), world.size()});
  });
  Progress progress(world.rank() == 0, work->all_bytes());
  begin_join(*work, world);
  Dealer dealer(*work, world);
  for (Standing mine; dealer.deal(mine);) {
    together(world, [&] { mine = advance_for(kRound, *work); });
    join_finished(*work, world);
    progress.show(world.sum(work->done_bytes()));
  }
  progress.end();
  const TokenizeReport all = sum(work->report(), world);
  world.require_all(all.documents > 0, ExitCode::bad_data,
                    fmt::format("no document in {} file(s) of {} bytes: nothing was written",
                                all.files, all.bytes));
  together(world, [&] { work->commit(); });
  together(world, [&] {
    if (world.rank() == 0) work->finish_join();
  });
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
