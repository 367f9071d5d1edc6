// trireme tokenize: plain text to a token dataset.
#include <fmt/format.h>

#include "app/arguments.hpp"
#include "app/commands.hpp"
#include "trireme/base/error.hpp"
#include "trireme/data/tokenize_text.hpp"

namespace trireme::app {

int tokenize(std::span<const std::string> words) {
  const Arguments arguments(
      words, {"input", "tokenizer", "output", "document-mark"},
      "trireme tokenize --input FILE... --tokenizer bytes --output PREFIX [--document-mark LINE]");
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(arguments.one("tokenizer"));
  TokenizeOptions options;
  options.inputs = arguments.all("input");
  options.output = arguments.one("output");
  options.tokenizer = tokenizer.get();
  options.document_mark = arguments.optional("document-mark");
  const TokenizeReport report = tokenize_text_files(options);
  fmt::print(
      "{}: {} tokens in {} documents from {} files ({} bytes; {} empty documents left out)\n",
      options.output, report.tokens, report.documents, report.files, report.bytes,
      report.empty_documents);
  return 0;
}

}  // namespace trireme::app
