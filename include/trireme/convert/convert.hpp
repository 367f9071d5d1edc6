// Whole models in and out: Hugging Face directories and llm.c files to checkpoints and back.
//
// All calls are collective over `context.world`: every rank reads and writes its share, in blocks
// of a fixed size, so that memory does not grow with the model. What is written appears whole or
// not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/io/checkpoint.hpp"
#include "trireme/io/float_type.hpp"

namespace trireme {

struct ImportOptions {
  std::filesystem::path source;  // a directory of Hugging Face, or an llm.c .bin file
  std::filesystem::path output;  // NAME.h5, or a run directory
  int64_t context = 0;           // longest sequence; 0: the model's
};
struct ConvertReport {
  std::filesystem::path written;  // the checkpoint, the directory or the file
  std::filesystem::path deck;     // imports: the deck beside it
  std::string model;              // in a few words
  int64_t parameters = 0;
  int64_t bytes = 0;               // of the weights written
  std::vector<std::string> notes;  // what a user should know
};
// Writes a checkpoint of weights at step 0, a deck beside it, and, in a directory NAME.hf or
// RUN/hf, the files that an export needs again (config.json, tokenizer). Weights keep their type;
// f16 is stored as f32. Throws Error(bad_data) for what Trireme cannot hold, with a list.
ConvertReport import_hugging_face(const CheckpointContext& context, const ImportOptions& options);
ConvertReport import_llmc(const CheckpointContext& context, const ImportOptions& options);

// Local. The directory of an import's other files that goes with a checkpoint: beside it, or in its
// run directory; empty where there is none.
std::filesystem::path imported_files(const std::filesystem::path& checkpoint);

struct ExportOptions {
  std::filesystem::path checkpoint;  // a file, or a run directory: its newest
  std::filesystem::path output;
  std::optional<FloatType> type;    // none: as stored, or as the imported model was
  std::filesystem::path like;       // directory with config.json and tokenizer; empty: that beside
                                    // the checkpoint, if there is one
  std::filesystem::path tokenizer;  // tokenizer.json, or a directory with tokenizer files
  int64_t context = 0;              // longest sequence; 0: as `like` or the run's deck says
  int64_t shard_bytes = 5'000'000'000;
};
// Master weights where the checkpoint has them. A new or empty directory with config.json,
// generation_config.json, safetensors and tokenizer files, which transformers loads as it is.
ConvertReport export_hugging_face(const CheckpointContext& context, const ExportOptions& options);
// An llm.c model file, version 3 (f32) or 5 (bf16).
ConvertReport export_llmc(const CheckpointContext& context, const ExportOptions& options);

}  // namespace trireme
