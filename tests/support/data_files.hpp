// Temporary directories and small files for the data tests.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/data/indexed_dataset.hpp"
#include "trireme/data/indexed_writer.hpp"

namespace trireme::test {

// A directory that is removed with everything in it.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "trireme_data_XXXXXX").string();
    const char* made = ::mkdtemp(pattern.data());
    if (made == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = made;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  std::string path_;
};

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::string bytes_of(std::initializer_list<int> values) {
  std::string bytes;
  for (int value : values) bytes.push_back(static_cast<char>(value));
  return bytes;
}

// Runs `call`, which must throw an Error with the code and every word in its text.
template <class Call>
void expect_error(ExitCode code, const std::vector<std::string>& words, Call call) {
  try {
    call();
    ADD_FAILURE() << "no error; expected one about " << ::testing::PrintToString(words);
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    for (const std::string& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
          << "\"" << word << "\" is not in: " << error.what();
  }
}

using Documents = std::vector<std::vector<std::vector<int32_t>>>;  // documents, sequences, tokens

inline void write_dataset(const std::string& prefix, const Documents& documents,
                          TokenType type = TokenType::u16) {
  IndexedDatasetWriter writer({.prefix = prefix, .type = type});
  for (const auto& document : documents) {
    for (const auto& sequence : document) {
      writer.append(sequence);
      writer.end_sequence();
    }
    writer.end_document();
  }
  writer.commit();
}

inline std::vector<int32_t> read_sequence(const IndexedDataset& dataset, int64_t sequence) {
  std::vector<int32_t> tokens(static_cast<size_t>(dataset.sequences()[sequence]));
  dataset.read(sequence, 0, tokens);
  return tokens;
}

}  // namespace trireme::test
