// Bytes of an input one after the other: a part of a file, standard input, or what a compressed
// file holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace trireme {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `out` from its start and returns how many bytes; 0 only at the end. Errors: no_input, io,
  // bad_data (damaged compressed data), with the file and the place.
  virtual size_t read(std::span<char> out) = 0;
  // Bytes of the file that were taken so far, for progress.
  virtual int64_t taken() const = 0;
};

// From byte `begin` to the end of the file.
std::unique_ptr<ByteSource> open_file(const std::string& path, int64_t begin);
std::unique_ptr<ByteSource> open_standard_input();
// gzip (RFC 1952, any number of members) and Zstandard (RFC 8878, any number of frames); refused
// with Error(bad_data) where the build has no library for them.
std::unique_ptr<ByteSource> open_gzip(std::unique_ptr<ByteSource> packed, const std::string& path);
std::unique_ptr<ByteSource> open_zstd(std::unique_ptr<ByteSource> packed, const std::string& path);

enum class Packing : uint8_t { none, gzip, zstd };
// By the first bytes of a file.
Packing packing_of(const std::string& path);

}  // namespace trireme
