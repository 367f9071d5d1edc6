// Files by POSIX calls, with errors that name the file, the byte and the cause.
//
// `InputFile` reads at offsets (pread), so that a file that shrinks is an error and not a signal.
// `OutputFile` writes under a temporary name beside the final one, and appears only when published.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme {

class InputFile {
 public:
  // Errors: no_input where the file is missing, unreadable or not a regular file.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // bytes, when it was opened
  // Fills `out` from byte `offset`. Errors: no_input where the file ends earlier, io from the
  // system.
  void read_at(int64_t offset, std::span<std::byte> out) const;
  // First byte at or after `offset` that is stored (size() if none), and the end of the stored run
  // there. Where the file system knows no holes, everything is stored.
  int64_t next_data(int64_t offset) const;
  int64_t next_hole(int64_t offset) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

class OutputFile {
 public:
  // Creates the temporary file. Errors of all members: io.
  explicit OutputFile(std::string path);
  ~OutputFile();  // removes the temporary file if it was not published
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void skip(int64_t bytes);  // bytes of zero, left as a hole, or written by another process
  const std::string& temporary() const { return temporary_; }
  void flush();  // to the file; flush_to_disk also makes it durable
  void flush_to_disk();
  void finish();   // instead of flush_to_disk, where a crash may lose the file
  void publish();  // rename; after flush_to_disk

 private:
  void set_size();
  void close();

  std::string path_, temporary_;
  int descriptor_ = -1;
  int64_t flushed_ = 0;  // file offset of the start of buffer_
  std::vector<std::byte> buffer_;
  bool published_ = false;
};

// Bytes of a file, and where they go in another one.
struct FileRun {
  int64_t from, bytes, to;
};
// Moves runs of the file `from` into an existing file, and lets the system begin to write that to
// disk. What has been moved is given back to the file system where it can be: the two together take
// no more space or memory than one. `from` keeps its size. Errors: no_input, io.
void move_into(const std::string& from, std::span<const FileRun> runs, const std::string& path);
void flush_to_disk(const std::string& path);
// Makes renames in the directory of `path` durable.
void sync_directory_of(const std::string& path);
void remove_if_present(const std::string& path);

}  // namespace trireme
