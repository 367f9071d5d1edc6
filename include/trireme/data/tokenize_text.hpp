// Text and JSONL files to a token dataset: `trireme tokenize`.
//
// Inputs are read in the order given. Text: a document ends at the end of its file and, where a
// mark is given, at each line that equals the mark (a line ends with "\n" or "\r\n"; the last may
// have no end). Mark lines belong to no document; all other bytes, line ends included, are kept as
// they are; bytes that are not UTF-8 become ids of their own. JSONL: every line is an object with
// the document under one key. Each document is one sequence: its template's start marks, its ids,
// its template's end marks, and one end-of-document id (exactly one: none is added where the end
// marks end with it).
//
// What becomes of awkward input:
//   document without any ids, blank line   left out, counted
//   line that is not an object in JSON (cut, bad UTF-8, lone surrogate), without the key, or with
//   something else than a text under it   Error(bad_data) with file and line, or skipped and
//   counted record longer than longest_document   Error(bad_data)
//
// Promises: the output is complete or absent, and byte for byte the same for any number of threads
// and processes. Memory does not grow with the inputs (but a document is held whole, unless its
// tokenizer may cut text anywhere).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/tokenizer.hpp"

namespace trireme {

enum class TextFormat : uint8_t { by_name, text, jsonl };  // by_name: .jsonl, .ndjson, .json
enum class BadLines : uint8_t { stop, skip };

struct TokenizeOptions {
  // Files, in the order they are to be read; "-" is standard input. gzip and Zstandard are
  // unpacked.
  std::vector<std::string> inputs;
  std::string output;                        // prefix of .bin and .idx
  const Tokenizer* tokenizer = nullptr;      // not owned
  std::optional<std::string> document_mark;  // without a line end; absent: one document a file
  std::function<void(int64_t done_bytes, int64_t all_bytes)>
      progress;  // may be empty; after every MiB
  TextFormat format = TextFormat::by_name;
  std::string key = "text";
  // JSONL: a text that comes before the one under `key`, and is no target of training: PREFIX.mask,
  // a dataset of one byte a token beside the output, has 0 for it (and for start marks), else 1.
  std::optional<std::string> prompt_key;
  BadLines bad_lines = BadLines::stop;
  bool append_end = true;  // the end-of-document id
  int threads = 1;
  int64_t longest_document = int64_t{1} << 30;  // bytes of a record
};

struct TokenizeReport {
  int64_t files = 0, bytes = 0;
  int64_t documents = 0;        // written
  int64_t empty_documents = 0;  // left out
  int64_t tokens = 0;           // marks and end-of-document ids included
  int64_t vocab = 0;
  // Lines of JSONL; documents are written, empty, or one of these.
  int64_t blank_lines = 0, malformed_lines = 0, lines_without_key = 0, lines_without_text = 0;
};

// One of the processes that share the work: `index` of `count`.
struct Share {
  int index = 0, count = 1;
  int pieces = 0;  // that the text is cut into where several share it; 0: as many as suit
};

// What came of a piece of the text.
struct PieceSize {
  int piece;
  int64_t tokens, documents;
};

// One process's share of a tokenization. The text is cut into pieces, the same in all processes,
// each of which some process takes; joined in order they are the dataset. Of several processes each
// writes a part beside the dataset, from which pieces are moved into place as soon as those before
// them are finished; their files must be in one file system.
class TokenizeWork {
 public:
  // Errors: no_input (a file is missing or unreadable; all are checked), usage (no input, a mark
  // with a line end in it, JSONL with a mark, text with a prompt key), bad_data (no end-of-document
  // id), io.
  TokenizeWork(const TokenizeOptions& options, Share share);
  ~TokenizeWork();  // what is not committed, and the part, are removed

  int pieces() const;  // of the whole work; 1 where one process does it
  bool reads_standard_input(int piece) const;
  int64_t bytes_of(int piece) const;  // of its inputs; standard input counts as nothing
  void take(int piece);

  // Reads about `bytes` more of the pieces taken; false once nothing is left of them. Errors:
  // bad_data, no_input, io.
  bool advance(int64_t bytes);
  int64_t done_bytes() const;
  int64_t left_bytes() const;            // of the pieces taken
  int64_t all_bytes() const;             // of all pieces; standard input counts as nothing
  const TokenizeReport& report() const;  // of this share; complete once all pieces are done

  // Joining. One process begins, at any time, and gives the result to all. Each tells all, itself
  // too, what it has finished, and brings what it can; once everything is brought all commit; then
  // the one that began finishes. Where the share is the only one, commit() writes the dataset, and
  // the rest does nothing.
  std::vector<std::string> begin_join();
  void join_into(std::vector<std::string> files);
  std::vector<PieceSize> finished();  // since the last call
  void learn(int process, std::span<const PieceSize> finished);
  void bring();
  void commit();
  void finish_join();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// All of it in one process. Errors: those of TokenizeWork, and bad_data (no document at all).
TokenizeReport tokenize_text_files(const TokenizeOptions& options);

}  // namespace trireme
