// The header of Megatron's .idx files, shared by the reader and the writer.
#pragma once

#include <cstdint>

#include "trireme/data/indexed_dataset.hpp"

namespace trireme {

inline constexpr char kIndexMagic[] = "MMIDIDX\0";  // 9 bytes with the terminating NUL
inline constexpr int64_t kIndexMagicBytes = sizeof(kIndexMagic);
inline constexpr uint64_t kIndexVersion = 1;
inline constexpr int64_t kIndexHeaderBytes = 34;
static_assert(kIndexMagicBytes == 9);

struct IndexHeader {
  TokenType type = TokenType::i32;
  int64_t sequences = 0;
  int64_t document_entries = 1;  // documents + 1
};

// Checks magic, version, type, and that the counts account for every byte of the file.
IndexHeader read_index_header(const InputFile& idx);

}  // namespace trireme
