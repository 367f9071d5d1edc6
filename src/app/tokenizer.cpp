// trireme tokenizer train: learns a byte-level BPE tokenizer from text.
#include <fmt/format.h>

#include "app/arguments.hpp"
#include "app/commands.hpp"
#include "trireme/base/error.hpp"
#include "trireme/data/train_tokenizer.hpp"

namespace trireme::app {

int tokenizer(std::span<const std::string> words) {
  const std::string usage =
      "trireme tokenizer train --input FILE... --vocab N --output tokenizer.json [--key KEY] "
      "[--document-mark LINE] [--eod TOKEN]";
  const Arguments arguments(words, {"input", "vocab", "output", "key", "document-mark", "eod"},
                            usage);
  require(arguments.positions() == std::vector<std::string>{"train"}, ExitCode::usage,
          "train is the only thing to do\nusage: {}", usage);
  TrainTokenizerOptions options;
  options.input.inputs = arguments.all("input");
  options.input.output = arguments.one("output");
  options.input.key = arguments.optional("key").value_or("text");
  options.input.document_mark = arguments.optional("document-mark");
  options.vocab = arguments.number("vocab", 257);
  options.end_of_document = arguments.optional("eod").value_or(options.end_of_document);
  const TrainTokenizerReport report = train_tokenizer(options);
  fmt::print("{}: {} ids learned from {} bytes, {} different words\n", options.input.output,
             report.vocab, report.bytes, report.words);
  return 0;
}

}  // namespace trireme::app
