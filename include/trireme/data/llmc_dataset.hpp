// llm.c's token files as one dataset: shards in the order of their names, each one sequence.
//
// A shard is a header of 256 32-bit words (magic 20240520, version 1, count: 16-bit ids, GPT-2; or
// 20240801, version 7: 32-bit ids, Llama 3), then `count` ids, little-endian. In these files the
// end-of-text id begins a document, it does not end one.
//
// Promises: a file with another header, cut or extended, is refused when it is opened, with file
// and byte. Reads are exact or named errors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/data/sequence_store.hpp"

namespace trireme {

class InputFile;

// Whether `path` names such files: a pattern (*, ?, [...]) that ends with .bin, or a .bin file
// with one of the magic numbers. Errors: no_input (a pattern that no file matches).
bool names_llmc_files(const std::string& path);

class LlmcDataset : public SequenceStore {
 public:
  // `vocab` > 0 is the limit for ids. Errors: no_input, bad_data.
  LlmcDataset(std::string path, int64_t vocab, std::shared_ptr<IndexMemory> memory = nullptr);
  ~LlmcDataset() override;

  const SequenceLengths& sequences() const override { return lengths_; }
  void read(int64_t sequence, int64_t first, std::span<int32_t> out) const override;
  std::string name() const override { return path_; }

 private:
  struct Shard {
    std::unique_ptr<InputFile> file;
    int64_t width = 2;  // bytes of an id
  };
  std::string path_;
  int64_t limit_;  // ids are below this
  std::vector<Shard> shards_;
  SequenceLengths lengths_;
};

}  // namespace trireme
