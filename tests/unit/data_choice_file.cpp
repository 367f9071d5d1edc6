// llm.c's evaluation files: read back what was laid out word by word, and refuse anything else with
// its place.
#include "trireme/data/choice_file.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "support/choice_bytes.hpp"
#include "trireme/base/error.hpp"

namespace trireme::test {
namespace {

class ChoiceFile : public ::testing::Test {
 protected:
  ~ChoiceFile() override { std::filesystem::remove(path_); }
  std::vector<ChoiceExample> read(const std::string& bytes, int64_t vocab = 50257) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return read_choices(path_, vocab);
  }
  void expect_refused(const std::string& bytes, const std::string& words) {
    try {
      read(bytes);
      ADD_FAILURE() << "taken: " << words;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::bad_data);
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
  }
  std::string path_ = ::testing::TempDir() + "choices.bin";
};

// 17 words of the format, by hand: context 10 11, completions 12, 13 14.
const std::vector<uint16_t> kWords = {65535, 26, 0, 1, 2, 2, 10, 11, 1, 12, 2, 13, 14};
const ChoiceExample kExample{{10, 11}, {{12}, {13, 14}}, 1};

TEST_F(ChoiceFile, IsLaidOutAsLlmC) {
  std::vector<int32_t> header(256);
  header[0] = 20240522, header[1] = 1, header[2] = 1, header[3] = 26;
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  bytes.append(reinterpret_cast<const char*>(kWords.data()), 26);
  EXPECT_EQ(choice_bytes({kExample}), bytes);
  const auto examples = read(bytes);
  ASSERT_EQ(examples.size(), 1u);
  EXPECT_EQ(examples[0].context, kExample.context);
  EXPECT_EQ(examples[0].completions, kExample.completions);
  EXPECT_EQ(examples[0].label, 1);
  EXPECT_EQ(examples[0].longest(), 4);
}

TEST_F(ChoiceFile, DamageIsNamed) {
  const std::string good = choice_bytes({kExample, kExample, kExample});
  EXPECT_EQ(read(good).size(), 3u);
  for (size_t size = 1; size < good.size(); size += 7)
    EXPECT_THROW(read(good.substr(0, size)), Error) << size;
  expect_refused(good.substr(0, 500), "too few");
  expect_refused(good.substr(0, 1024 + 31), "inside example 1");
  expect_refused(good + "xy", "2 bytes behind the last of 3 examples");
  const auto changed = [&](size_t word, uint16_t value) {
    std::string bytes = good;
    bytes[1024 + 2 * word] = static_cast<char>(value & 255);
    bytes[1024 + 2 * word + 1] = static_cast<char>(value >> 8);
    return bytes;
  };
  expect_refused(changed(13, 5), "5 where example 1 should start");
  expect_refused(changed(3, 2), "label 2 of 2 completions");
  expect_refused(changed(5, 0), "an empty context");
  expect_refused(changed(8, 0), "an empty completion");
  expect_refused(changed(6, 60000), "token 60000 is not below the model's vocabulary 50257");
  expect_refused(changed(1, 28), "says 28 bytes and has 26");
  std::string other = good;
  other[0] = 3;
  expect_refused(other, "magic");
}

TEST_F(ChoiceFile, MissingFileIsNoInput) {
  try {
    read_choices("/nonexistent/x.bin", 10);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::no_input);
  }
}

// Means, not sums: 3/1 against 4/2; equal means go to the first.
TEST_F(ChoiceFile, TheSmallestMeanLossIsChosen) {
  EXPECT_EQ(best_completion(kExample, {3, 4}), 1);
  EXPECT_EQ(best_completion(kExample, {1.9, 4}), 0);
  EXPECT_EQ(best_completion(kExample, {2, 4}), 0);
}

}  // namespace
}  // namespace trireme::test
