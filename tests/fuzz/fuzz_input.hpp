// What every fuzz target shares: bytes become files, and an input may only be read or be refused.
//
// A target defines LLVMFuzzerTestOneInput. Under clang libFuzzer calls it with inputs of its own;
// elsewhere replay.cpp does, with the corpus and with seeded mutations of it.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "trireme/base/error.hpp"

namespace trireme::fuzz {

// A folder of this process, in memory where the system has such a place; it goes at exit.
class Scratch {
 public:
  Scratch() {
    const std::filesystem::path memory = "/dev/shm";
    const auto parent =
        ::access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
    std::string pattern = (parent / "trireme_fuzz_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string put(const std::string& name, std::string_view bytes) const {
    std::ofstream file(folder_ / name, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path(name);
  }

 private:
  std::filesystem::path folder_;
};

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Runs `call`, which may refuse the input as bad or missing. Every other end is a finding.
template <class Call>
int read_or_refuse(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    const bool refused = error.code() == ExitCode::bad_data || error.code() == ExitCode::no_input;
    const bool named = std::string_view(error.what()).size() > 8;
    if (refused && named) return 0;
    std::fprintf(stderr, "exit code %d: %s\n", static_cast<int>(error.code()), error.what());
    std::abort();
  }
  return 0;
}

}  // namespace trireme::fuzz
