// New files that several ranks write together and that appear all at once, or not at all: they are
// written under a temporary name, synced, and renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.hpp"

namespace trireme {

struct NewFile {
  std::string name;   // in the directory
  std::string start;  // its first bytes
  int64_t bytes = 0;  // of the whole file
};

class OutputFiles {
 public:
  // Collective. Makes TARGET.tmp with the files in it and takes their space. A single file without
  // a name is TARGET itself; otherwise TARGET becomes a directory, which must not exist or be
  // empty. Throws the same Error on all ranks: usage for a target that is in use, io when the disk
  // refuses.
  OutputFiles(const Communicator& world, const std::filesystem::path& target,
              std::vector<NewFile> files);
  // Removes what was not committed.
  ~OutputFiles();
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  // Where further files of the directory belong until `commit`.
  const std::filesystem::path& temporary() const;
  // Local. Throws Error(io).
  void write(size_t file, int64_t offset, std::span<const std::byte> bytes) const;
  // Local: what this rank wrote is on the disk. Throws Error(io).
  void sync() const;
  // Collective, after every rank's `sync` succeeded: renames. Throws Error(io) on all ranks.
  void commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
