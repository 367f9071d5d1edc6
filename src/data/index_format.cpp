// Reads and checks the header of an .idx file. Nothing is allocated by a count before it is known
// to fit the file.
#include "data/index_format.hpp"

#include <array>
#include <cstring>

#include "data/posix_file.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

uint64_t load64(const std::byte* from) {
  uint64_t value = 0;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

TokenType checked_type(const InputFile& idx, unsigned code) {
  require(code != 6 && code != 7, ExitCode::bad_data,
          "{}: byte 17: type code {} is floating point, not token ids", idx.path(), code);
  require((code >= 1 && code <= 5) || code == 8, ExitCode::bad_data,
          "{}: byte 17: unknown type code {}; 1 to 5 and 8 are known", idx.path(), code);
  return static_cast<TokenType>(code);
}

}  // namespace

IndexHeader read_index_header(const InputFile& idx) {
  require(idx.size() >= kIndexHeaderBytes, ExitCode::bad_data,
          "{}: ends at byte {}, inside the header of {} bytes", idx.path(), idx.size(),
          kIndexHeaderBytes);
  std::array<std::byte, kIndexHeaderBytes> raw;
  idx.read_at(0, raw);
  require(std::memcmp(raw.data(), kIndexMagic, kIndexMagicBytes) == 0, ExitCode::bad_data,
          "{}: byte 0: not a Megatron index (its first bytes are not MMIDIDX)", idx.path());
  const uint64_t version = load64(&raw[9]);
  require(version == kIndexVersion, ExitCode::bad_data, "{}: byte 9: version {}, only {} is known",
          idx.path(), version, kIndexVersion);
  IndexHeader header;
  header.type = checked_type(idx, std::to_integer<unsigned>(raw[17]));

  // Counts beyond what the file can hold are refused first, so that no product below can wrap.
  const uint64_t size = static_cast<uint64_t>(idx.size());
  const uint64_t sequences = load64(&raw[18]), entries = load64(&raw[26]);
  require(sequences <= size / 12, ExitCode::bad_data,
          "{}: byte 18: {} sequences do not fit in a file of {} bytes", idx.path(), sequences,
          size);
  require(entries <= size / 8, ExitCode::bad_data,
          "{}: byte 26: {} document entries do not fit in a file of {} bytes", idx.path(), entries,
          size);
  require(entries >= 1, ExitCode::bad_data,
          "{}: byte 26: no document entries; there is at least one", idx.path());
  const uint64_t expected = kIndexHeaderBytes + 12 * sequences + 8 * entries;
  require(
      size == expected || size == expected + sequences, ExitCode::bad_data,
      "{}: {} at byte {}: {} sequences and {} document entries take {} bytes ({} with modes); it "
      "has {}",
      idx.path(), size < expected ? "ends" : "should end", size < expected ? size : expected,
      sequences, entries, expected, expected + sequences, size);
  header.sequences = static_cast<int64_t>(sequences);
  header.document_entries = static_cast<int64_t>(entries);
  return header;
}

}  // namespace trireme
