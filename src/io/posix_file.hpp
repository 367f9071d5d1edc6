// POSIX files whose every failure is an Error that names the file, the operation and the system's
// reason. No call moves more than 1 GiB; interrupted and short transfers are continued.
//
// Nothing here calls MPI: any thread may use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace trireme::io {

// An open file. Move-only; the destructor closes and ignores errors, `close` reports them.
class PosixFile {
 public:
  PosixFile() = default;
  ~PosixFile();
  PosixFile(PosixFile&& other) noexcept;
  PosixFile& operator=(PosixFile&& other) noexcept;
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;

  // Regular files only. Fails with no_input where there is no such file, io otherwise.
  static PosixFile open_to_read(const std::filesystem::path& path);
  // Write-only: a client of a network file system must not fill pages around what it writes.
  static PosixFile open_to_write(const std::filesystem::path& path);
  // The same past the page cache, for `write_directly_at`; nothing where it cannot be had.
  static std::optional<PosixFile> open_to_write_directly(const std::filesystem::path& path);
  // Write-only, fails if the name exists.
  static PosixFile create(const std::filesystem::path& path);

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  const std::filesystem::path& path() const { return path_; }
  int64_t size() const;
  void write_at(std::span<const std::byte> bytes, int64_t offset) const;
  // One write of whole blocks (of kBlock, in memory, in the file and in length) by a file that was
  // opened to write directly. Returns how many bytes were accepted: 0 where the file system takes
  // no such write after all.
  int64_t write_directly_at(std::span<const std::byte> bytes, int64_t offset) const;
  static constexpr int64_t kBlock = 4096;
  // Lets the disk start on what was just written while the caller goes on; `sync` waits for it and
  // reports its errors. A wish.
  void start_writing(int64_t offset, int64_t bytes) const;
  // The same for what will be read next.
  void start_reading(int64_t offset, int64_t bytes) const;
  // Error(bad_data) when the file ends before.
  void read_at(std::span<std::byte> bytes, int64_t offset) const;
  // Takes the blocks of [0, bytes) from the file system now, reading as zeros, so that later writes
  // cannot meet a full disk. Where the file system cannot (fallocate(2) is not emulated), asks for
  // free space with 5 % to spare and sets the size.
  void reserve(int64_t bytes) const;
  void sync() const;
  void close();

 private:
  PosixFile(int descriptor, std::filesystem::path path);
  int descriptor_ = -1;
  std::filesystem::path path_;
};

void rename_file(const std::filesystem::path& from, const std::filesystem::path& to);
// True if it was there.
bool remove_file(const std::filesystem::path& path);
// Makes renames and removals in the directory durable.
void sync_directory(const std::filesystem::path& directory);
// Whole or absent: temporary name, sync, rename. The directory is not synced.
void write_text_file(const std::filesystem::path& path, const std::string& text);
// Fails with bad_data when longer than `limit`.
std::string read_text_file(const std::filesystem::path& path, int64_t limit);

// "No space left on device (28)"
std::string system_reason(int error_number);

}  // namespace trireme::io
