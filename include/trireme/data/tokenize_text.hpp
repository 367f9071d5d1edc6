// Plain text files to a token dataset: `trireme tokenize`.
//
// Files are read in the order given, as bytes. A document ends at the end of its file and, where a
// mark is given, at each line that equals the mark (a line ends with "\n" or "\r\n"; the last may
// have no end). Mark lines belong to no document; all other bytes, line ends included, are kept as
// they are. Each document is one sequence: its ids and one end-of-document id. A document without
// any bytes is left out and counted. Promises: the output is complete or absent; memory does not
// grow with files or lines, for tokenizers that may cut text anywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/data/tokenizer.hpp"

namespace trireme {

struct TokenizeOptions {
  std::vector<std::string> inputs;           // files, in the order they are to be read
  std::string output;                        // prefix of .bin and .idx
  const Tokenizer* tokenizer = nullptr;      // not owned
  std::optional<std::string> document_mark;  // without a line end; absent: one document a file
  std::function<void(int64_t done_bytes, int64_t all_bytes)>
      progress;  // may be empty; after every MiB
};

struct TokenizeReport {
  int64_t files = 0, bytes = 0;
  int64_t documents = 0;        // written
  int64_t empty_documents = 0;  // left out
  int64_t tokens = 0;           // end-of-document ids included
  int64_t vocab = 0;
};

// Errors: no_input (a file is missing or unreadable; checked for all before anything is written),
// usage (no input, a mark with a line end in it), bad_data (no document at all), io (output).
TokenizeReport tokenize_text_files(const TokenizeOptions& options);

}  // namespace trireme
