// Safetensors: a header of JSON, then the tensors. Reading treats the file as hostile: lengths,
// nesting, types, shapes, offsets, overlaps, holes and repeated names are checked before anything
// is allocated by them.
//
// File: u64 length N of the header, N bytes of UTF-8 JSON (which may end in spaces), the data
// buffer. Row-major, little-endian. Source: the format's description in the safetensors project.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;                      // one of the format's names, such as "BF16"
  std::vector<int64_t> shape;             // empty: a scalar
  int64_t first_byte = 0, last_byte = 0;  // in the data buffer; last is exclusive
  int64_t bytes() const { return last_byte - first_byte; }
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

// Longest header that the format allows, in bytes.
constexpr int64_t kLongestSafetensorsHeader = 100'000'000;

// The JSON of a header in front of `data_bytes` of data. Throws Error(bad_data), with `file` in the
// text, unless the tensors cover the data exactly: no hole, no overlap, nothing left over.
SafetensorsHeader parse_safetensors_header(std::string_view json, int64_t data_bytes,
                                           const std::string& file);

class SafetensorsFile {
 public:
  // Throws Error(no_input) where there is no file, Error(bad_data) for one that is not whole.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const SafetensorsHeader& header() const { return header_; }
  int64_t data_offset() const { return data_offset_; }  // of the data buffer in the file

 private:
  SafetensorsHeader header_;
  int64_t data_offset_ = 0;
};

// A file to be written: everything but the data.
struct SafetensorsLayout {
  std::string start;                      // length and header, padded to a multiple of 8
  std::vector<SafetensorsEntry> tensors;  // with their places
  int64_t data_bytes = 0;
  int64_t file_bytes() const { return static_cast<int64_t>(start.size()) + data_bytes; }
};
// Places tensors (name, dtype and shape are given) as the reference writer does: widest elements
// first, then by name. Metadata is {"format": "pt"}, without which some readers refuse the file.
SafetensorsLayout lay_out_safetensors(std::vector<SafetensorsEntry> tensors);

}  // namespace trireme
