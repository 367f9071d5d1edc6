// What is read of a checkpoint beside training: statistics, old files, hostile headers, and files
// changed at random that carry right sums.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <random>

#include "support/checkpoint_bytes.hpp"
#include "trireme/io/tensor_statistics.hpp"

namespace trireme::test {
namespace {

void put_floats(CheckpointBytes& made, const std::string& name, const std::vector<float>& values) {
  for (const StoredTensor& tensor : made.index.tensors)
    if (tensor.name == name)
      std::memcpy(made.bytes.data() + tensor.offset, values.data(), values.size() * sizeof(float));
}

TEST(TensorStatistics, OfFiniteElementsOnly) {
  const ScratchDirectory directory;
  const auto path = directory.path() / "a.h5";
  CheckpointBytes made = checkpoint_bytes(
      {{"weights/w", {2, 4}}, {"weights/b", {3}, DType::bf16}, {"weights/i", {2}, DType::i32}}, 1);
  put_floats(made, "weights/w", {1, -3, 0, 0, 2.5f, std::nanf(""), INFINITY, -INFINITY});
  write_bytes(path, made.bytes);
  const CheckpointFile file(path);
  const TensorStatistics s = statistics_of(file, *file.find("weights/w"));
  EXPECT_DOUBLE_EQ(s.mean, 0.1);
  EXPECT_NEAR(s.deviation, std::sqrt((0.81 + 9.61 + 0.01 + 0.01 + 5.76) / 5), 1e-12);
  EXPECT_EQ(s.least, -3);
  EXPECT_EQ(s.greatest, 2.5);
  EXPECT_EQ(s.zeros, 2);
  EXPECT_EQ(s.nans, 1);
  EXPECT_EQ(s.infinities, 2);
  const StateTensor integers{"weights/i", {2}, DType::i32};
  const auto a = static_cast<double>(static_cast<int32_t>(element_bits(integers, 0, 1)));
  const auto b = static_cast<double>(static_cast<int32_t>(element_bits(integers, 1, 1)));
  EXPECT_DOUBLE_EQ(statistics_of(file, *file.find("weights/i")).mean, (a + b) / 2);
}

TEST(BesideCheckpoint, IsForPeopleOnly) {
  const ScratchDirectory directory;
  const auto path = directory.path() / "a.h5";
  EXPECT_EQ(read_beside(path).grid, "");
  write_bytes(directory.path() / "a.json", "{\"grid\": \"tp 2\", \"versions\": 7}");
  EXPECT_EQ(read_beside(path).grid, "tp 2");
  EXPECT_EQ(read_beside(path).versions, "");
  write_bytes(directory.path() / "a.json", "[[[[");
  EXPECT_EQ(read_beside(path).grid, "");
}

std::string fault_of_header(const std::string& text) {
  try {
    io::decode_header(text, "a.h5");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_data);
    return error.what();
  }
}

TEST(CheckpointHeader, RefusesWhatNobodyWrote) {
  const std::string good = io::encode_header(header_at(3));
  EXPECT_EQ(fault_of_header(good), "");
  EXPECT_NE(fault_of_header(std::string(8 << 20, '[')), "");
  EXPECT_NE(fault_of_header("{\"a\":" + std::string(8 << 20, '{')), "");
  EXPECT_NE(fault_of_header("{\"step\": [1]}"), "");
  std::string keys = "{";
  for (int i = 0; i < 100000; ++i) keys += fmt::format("\"{}\":1,", i);
  EXPECT_NE(fault_of_header(keys + "\"z\":1}"), "");
  for (const char* bad : {"", "7", "\"step\"", "{}", "{\"step\":-1}", "{\"step\":1e3}",
                          "{\"step\":9223372036854775808}", "{\"step\":", "\x80\xff"})
    EXPECT_NE(fault_of_header(bad), "") << bad;
  // A file from before the schedule was stored.
  std::string older = good;
  const size_t at = older.find(",\"schedule\"");
  older.erase(at, older.find(",\"seed\"") - at);
  EXPECT_EQ(io::decode_header(older, "a.h5").schedule_section, "");
}

// Random changes of header, index and first block with all sums set right again: refused or read,
// never a crash, a hang or a large allocation.
TEST(CheckpointFile, SurvivesFilesThatLieAtRandom) {
  const CheckpointBytes good =
      checkpoint_bytes({{"weights/w", {37, 11}}, {"weights/b", {7}}, {"adam_m/w", {5, 3}}}, 2);
  const ScratchDirectory directory;
  const auto path = directory.path() / "a.h5";
  std::mt19937_64 random(17);
  const auto changed = [&](std::string& bytes, int64_t first, int64_t count) {
    const auto place = static_cast<size_t>(first) + random() % static_cast<size_t>(count);
    const char values[] = {0, 1, -1, 127, -128, static_cast<char>(random())};
    bytes[place] = values[random() % 6];
  };
  int refused = 0;
  for (int i = 0; i < 600; ++i) {
    std::string bytes = good.bytes;
    for (uint64_t n = 1 + random() % 3; n > 0; --n) {
      if (random() % 3 == 0)
        changed(bytes, good.index.header_offset, good.index.header_bytes);
      else if (random() % 2 == 0)
        changed(bytes, good.index.records_offset, good.index.records_bytes());
      else
        changed(bytes, 16, sizeof(io::Block) - 32);
    }
    io::Block block;
    std::memcpy(&block, bytes.data(), sizeof(block));
    const auto records =
        std::as_bytes(std::span(bytes).subspan(static_cast<size_t>(good.index.records_offset),
                                               static_cast<size_t>(good.index.records_bytes())));
    const ElementSum of_records = sum_bytes(records, 0);
    block.records_sum = {of_records.first, of_records.second};
    const ElementSum sum =
        sum_bytes(std::as_bytes(std::span(&block, 1)).first(offsetof(io::Block, block_sum)), 0);
    block.block_sum = {sum.first, sum.second};
    std::memcpy(bytes.data(), &block, sizeof(block));
    write_bytes(path, bytes);
    const auto start = std::chrono::steady_clock::now();
    try {
      refused += verify(path).whole() ? 0 : 1;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_data) << error.what();
      ++refused;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  }
  EXPECT_GT(refused, 400);
}

// Files of every released version load for ever: this one was written when version 1 was fixed. The
// text file holds its bytes but for the zeros: offset, then hexadecimal.
TEST(CheckpointFile, ReadsTheFileOfVersion1) {
  std::ifstream in(TRIREME_TEST_DATA "/checkpoint_version1.txt");
  ASSERT_TRUE(in.good());
  size_t size = 0, offset = 0;
  std::string hex;
  in >> size;
  std::string bytes(size, '\0');
  while (in >> offset >> hex)
    for (size_t i = 0; i < hex.size() / 2; ++i)
      bytes.at(offset + i) = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  const ScratchDirectory directory;
  const auto path = directory.path() / "a.h5";
  write_bytes(path, bytes);
  EXPECT_EQ(verify(path).fault(), "");
  EXPECT_EQ(read_header(path), header_at(41));
  const CheckpointFile file(path);
  ASSERT_EQ(file.tensors().size(), 3u);
  for (const StateTensor& tensor : std::vector<StateTensor>{
           {"adam_m/w", {2, 3, 5}}, {"weights/w", {7, 11}, DType::bf16}, {"weights/b", {3}}}) {
    const StoredTensor* stored = file.find(tensor.name);
    ASSERT_NE(stored, nullptr);
    HeldSlices held;
    held.add(tensor, shape_like(tensor.whole, {0, 0, 0}), tensor.whole);
    const TensorView& local = held.slices[0].local;
    file.read(*stored, 0, {local.data, local.bytes()});
    EXPECT_EQ(wrong_elements({tensor}, held, 41), 0) << tensor.name;
  }
}

}  // namespace
}  // namespace trireme::test
