// The layout of llm.c's GPT-2 model file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "trireme/config/settings.hpp"
#include "trireme/io/float_type.hpp"

namespace trireme {

struct LlmcFile {
  ModelSettings model;  // sizes are resolved
  FloatType type = FloatType::f32;
  int64_t padded_vocab = 0;                // rows of the token table in the file
  std::map<std::string, int64_t> offsets;  // of the tensors that llmc_links names, in bytes
  int64_t file_bytes = 0;

  // Fills offsets and file_bytes from the rest.
  void place();
  std::string header() const;  // the file's first 1024 bytes
};

// Throws Error(bad_data), with `file` in the text, unless the header is whole, of a known version,
// and describes a model of just this many bytes.
LlmcFile parse_llmc_header(std::span<const std::byte> start, int64_t file_bytes,
                           const std::string& file);

}  // namespace trireme
