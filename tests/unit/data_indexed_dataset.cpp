// Megatron's .bin/.idx: golden bytes, every kind of damage, and sizes past 32 bits (BR-25, BR-34).
#include "trireme/data/indexed_dataset.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <numeric>

#include "support/data_files.hpp"

namespace trireme {
namespace {

using test::bytes_of;
using test::expect_error;
using test::read_file;
using test::read_sequence;
using test::TempDir;
using test::write_dataset;
using test::write_file;

const std::string kGoldenIdx =
    bytes_of({0x4d, 0x4d, 0x49, 0x44, 0x49, 0x44, 0x58, 0, 0, 1, 0, 0, 0, 0, 0, 0,  //
              0,    0x08, 3,    0,    0,    0,    0,    0, 0, 0, 3, 0, 0, 0, 0, 0,  //
              0,    0,    3,    0,    0,    0,    1,    0, 0, 0, 2, 0, 0, 0, 0, 0,  //
              0,    0,    0,    0,    0,    0,    6,    0, 0, 0, 0, 0, 0, 0, 8, 0,  //
              0,    0,    0,    0,    0,    0,    0,    0, 0, 0, 0, 0, 0, 0, 2, 0,  //
              0,    0,    0,    0,    0,    0,    3,    0, 0, 0, 0, 0, 0, 0});
const std::string kGoldenBin = bytes_of({1, 0, 2, 0, 3, 0, 0x50, 0xc4, 7, 0, 0x50, 0xc4});

std::string put(std::string bytes, size_t offset, int64_t value, size_t width) {
  std::memcpy(&bytes[offset], &value, width);
  return bytes;
}

class GoldenDataset : public ::testing::Test {
 protected:
  GoldenDataset() {
    write_file(prefix_ + ".idx", kGoldenIdx);
    write_file(prefix_ + ".bin", kGoldenBin);
  }
  // Opening must fail with file, place and cause.
  void refuse(const std::string& idx, const std::vector<std::string>& words) {
    write_file(prefix_ + ".idx", idx);
    expect_error(ExitCode::bad_data, words, [&] { IndexedDataset dataset(prefix_); });
  }

  TempDir dir_;
  std::string prefix_ = dir_ / "golden";
};

TEST_F(GoldenDataset, ReadsExactly) {
  const IndexedDataset dataset(prefix_, 50257);
  EXPECT_EQ(dataset.type(), TokenType::u16);
  EXPECT_EQ(dataset.tokens(), 6);
  EXPECT_EQ(dataset.documents(), 2);
  EXPECT_EQ(dataset.document_start(1), 2);
  EXPECT_EQ(dataset.document_start(2), 3);
  EXPECT_EQ(dataset.document_of(1), 0);
  EXPECT_EQ(read_sequence(dataset, 0), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(read_sequence(dataset, 1), (std::vector<int32_t>{50256}));
  EXPECT_EQ(read_sequence(dataset, 2), (std::vector<int32_t>{7, 50256}));
  std::vector<int32_t> across(4);
  dataset.read_across(1, across);
  EXPECT_EQ(across, (std::vector<int32_t>{2, 3, 50256, 7}));
  dataset.SequenceStore::read_across(1, across);  // the piecewise way of stores without one file
  EXPECT_EQ(across, (std::vector<int32_t>{2, 3, 50256, 7}));
}

TEST_F(GoldenDataset, WriterMakesTheSameBytes) {
  write_dataset(dir_ / "written", {{{1, 2, 3}, {50256}}, {{7, 50256}}});
  EXPECT_EQ(read_file(dir_ / "written.idx"), kGoldenIdx);
  EXPECT_EQ(read_file(dir_ / "written.bin"), kGoldenBin);
}

TEST_F(GoldenDataset, ModesOfMultimodalSetsAreIgnored) {
  write_file(prefix_ + ".idx", kGoldenIdx + bytes_of({0, 1, 0}));
  EXPECT_EQ(IndexedDataset(prefix_).tokens(), 6);
}

TEST_F(GoldenDataset, EveryTruncationIsRefused) {
  for (size_t size = 0; size < kGoldenIdx.size(); ++size)
    refuse(kGoldenIdx.substr(0, size), {prefix_ + ".idx", std::to_string(size)});
  refuse(kGoldenIdx + "x", {prefix_ + ".idx", "byte 94", "95"});
}

TEST_F(GoldenDataset, DamagedHeadersAreRefused) {
  const std::string idx = prefix_ + ".idx";
  refuse(put(kGoldenIdx, 0, 'X', 1), {idx, "byte 0", "not a Megatron index"});
  refuse(put(kGoldenIdx, 8, 1, 1), {idx, "byte 0"});
  refuse(put(kGoldenIdx, 9, 2, 8), {idx, "byte 9", "version 2"});
  for (int code : {0, 6, 7, 9, 255})
    refuse(put(kGoldenIdx, 17, code, 1), {idx, "byte 17", std::to_string(code)});
  refuse(put(kGoldenIdx, 18, 4, 8), {idx, "4 sequences"});
  refuse(put(kGoldenIdx, 18, -1, 8), {idx, "byte 18"});
  refuse(put(kGoldenIdx, 18, INT64_MAX / 12, 8), {idx, "byte 18"});
  refuse(put(kGoldenIdx, 26, 0, 8), {idx, "byte 26"});
  refuse(put(kGoldenIdx, 26, -3, 8), {idx, "byte 26"});
}

TEST_F(GoldenDataset, DamagedArraysAreRefused) {
  const std::string idx = prefix_ + ".idx";
  refuse(put(kGoldenIdx, 38, -1, 4), {idx, "byte 38", "sequence 1", "-1"});
  refuse(put(kGoldenIdx, 54, -6, 8), {idx, "byte 54", "sequence 1", "negative"});
  refuse(put(kGoldenIdx, 54, 7, 8), {idx, "byte 54", "2-byte"});
  refuse(put(kGoldenIdx, 54, 4, 8), {idx, "byte 54", "sequence before it ends"});
  refuse(put(kGoldenIdx, 46, 2, 8), {idx, "byte 46", "sequence 0"});
  refuse(put(kGoldenIdx, 70, 1, 8), {idx, "byte 70", "document 0"});
  refuse(put(kGoldenIdx, 78, -1, 8), {idx, "byte 78", "document 1"});
  refuse(put(kGoldenIdx, 78, 4, 8), {idx, "byte 78", "document 1"});
  refuse(put(kGoldenIdx, 86, 2, 8), {idx, "byte 86", "3 sequences"});
  refuse(put(kGoldenIdx, 86, 1, 8), {idx, "byte 86"});
}

TEST_F(GoldenDataset, BinMustFitTheIndex) {
  write_file(prefix_ + ".bin", kGoldenBin.substr(0, 11));
  refuse(kGoldenIdx, {prefix_ + ".bin", "ends at byte 11", "12"});
  write_file(prefix_ + ".bin", kGoldenBin + "xx");
  refuse(kGoldenIdx, {prefix_ + ".bin", "should end at byte 12"});
}

TEST_F(GoldenDataset, MissingFilesAreNoInput) {
  expect_error(ExitCode::no_input, {"nowhere.idx"}, [&] { IndexedDataset d(dir_ / "nowhere"); });
  std::filesystem::remove(prefix_ + ".bin");
  expect_error(ExitCode::no_input, {"golden.bin"}, [&] { IndexedDataset d(prefix_); });
  std::filesystem::create_directory(prefix_ + ".bin");
  expect_error(ExitCode::no_input, {"not a regular file"}, [&] { IndexedDataset d(prefix_); });
}

TEST_F(GoldenDataset, PrefixesAreNamedWithoutTheEnding) {
  expect_error(ExitCode::no_input, {"named without the ending: " + prefix_},
               [&] { IndexedDataset d(prefix_ + ".bin"); });
  EXPECT_EQ(dataset_prefix("a/b.idx"), "a/b");
  EXPECT_EQ(dataset_prefix("a/b"), "a/b");
  expect_error(ExitCode::bad_config, {"prefix"}, [&] { IndexedDataset d(""); });
}

TEST_F(GoldenDataset, APipeIsRefusedAtOnce) {
  std::filesystem::remove(prefix_ + ".idx");
  ASSERT_EQ(::mkfifo((prefix_ + ".idx").c_str(), 0600), 0);
  expect_error(ExitCode::no_input, {"not a regular file"}, [&] { IndexedDataset d(prefix_); });
}

// Whatever one flipped bit or byte does to the index, the answer is an error that names a file, or
// a set whose tokens can all be read.
TEST_F(GoldenDataset, FlippedBytesNeverGetThrough) {
  int refused = 0, opened = 0;
  for (size_t place = 0; place < kGoldenIdx.size(); ++place)
    for (int flip : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
      std::string idx = kGoldenIdx;
      idx[place] = static_cast<char>(idx[place] ^ flip);
      write_file(prefix_ + ".idx", idx);
      try {
        verify_dataset(prefix_, 60000);
        ++opened;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::bad_data);
        EXPECT_NE(std::string(error.what()).find(prefix_), std::string::npos) << error.what();
        ++refused;
      }
    }
  EXPECT_GT(refused, 800);
  EXPECT_EQ(refused + opened, 94 * 9);
}

TEST_F(GoldenDataset, BinThatShrinksLaterIsANamedError) {
  const IndexedDataset dataset(prefix_);
  std::filesystem::resize_file(prefix_ + ".bin", 9);
  EXPECT_EQ(read_sequence(dataset, 1), (std::vector<int32_t>{50256}));
  expect_error(ExitCode::no_input, {prefix_ + ".bin", "byte 9", "12 bytes"},
               [&] { read_sequence(dataset, 2); });
}

// BR-34: ids outside the vocabulary, with the place.
TEST_F(GoldenDataset, IdsOutsideTheVocabularyAreRefused) {
  const IndexedDataset dataset(prefix_, 50256);
  EXPECT_EQ(read_sequence(dataset, 0), (std::vector<int32_t>{1, 2, 3}));
  expect_error(ExitCode::bad_data,
               {prefix_ + ".bin", "50256", "position 1 of document 1", "byte 10"},
               [&] { read_sequence(dataset, 2); });
  expect_error(ExitCode::bad_data, {"50256", "position 3 of document 0"},
               [&] { verify_dataset(prefix_, 50256); });
}

TEST(IndexedDataset, ModelOf256OnIds255To300) {
  const TempDir dir;
  for (int32_t id : {255, 256, 300}) {
    write_dataset(dir / "x", {{{1, id}}});
    if (id < 256) {
      EXPECT_EQ(verify_dataset(dir / "x", 256).largest_id, id);
    } else {
      expect_error(ExitCode::bad_data, {std::to_string(id), "position 1 of document 0"},
                   [&] { verify_dataset(dir / "x", 256); });
    }
  }
}

template <class T>
std::string raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

TEST(IndexedDataset, NegativeIdsAreRefusedInEveryWidth) {
  const TempDir dir;
  const auto refuse = [&](TokenType type, const std::string& bin) {
    write_dataset(dir / "n", {{{5, 1}}}, type);
    EXPECT_EQ(read_sequence(IndexedDataset(dir / "n"), 0), (std::vector<int32_t>{5, 1}));
    write_file(dir / "n.bin", bin);
    const IndexedDataset dataset(dir / "n");
    expect_error(ExitCode::bad_data, {"-2", "position 1"}, [&] { read_sequence(dataset, 0); });
  };
  refuse(TokenType::i8, raw<int8_t>({5, -2}));
  refuse(TokenType::i16, raw<int16_t>({5, -2}));
  refuse(TokenType::i32, raw<int32_t>({5, -2}));
  refuse(TokenType::i64, raw<int64_t>({5, -2}));
}

TEST(IndexedDataset, WideIdsBeyond32BitsAreRefused) {
  const TempDir dir;
  write_dataset(dir / "w", {{{5, 1}}}, TokenType::i64);
  write_file(dir / "w.bin", raw<int64_t>({5, (int64_t{1} << 32) + 1}));
  const IndexedDataset dataset(dir / "w", 100);
  expect_error(ExitCode::bad_data, {"4294967297"}, [&] { read_sequence(dataset, 0); });
}

// BR-34: widths by vocabulary, largest id read back, type code in the file.
TEST(IndexedDataset, WidthFollowsTheVocabulary) {
  const TempDir dir;
  EXPECT_EQ(token_type_for(257), TokenType::u16);
  EXPECT_EQ(token_type_for(65499), TokenType::u16);
  EXPECT_EQ(token_type_for(65500), TokenType::i32);
  for (int32_t vocab : {65499, 65500, 65535, 65536, 65537, 70000}) {
    write_dataset(dir / "v", {{{0, vocab - 1}}}, token_type_for(vocab));
    EXPECT_EQ(read_file(dir / "v.idx")[17], vocab < 65500 ? 8 : 4);
    EXPECT_EQ(read_sequence(IndexedDataset(dir / "v", vocab), 0),
              (std::vector<int32_t>{0, vocab - 1}));
  }
  write_dataset(dir / "v", {{{65535}}}, TokenType::u16);
  EXPECT_EQ(verify_dataset(dir / "v", 65536).largest_id, 65535);
}

TEST(IndexedDataset, EmptySetAndEmptyDocuments) {
  const TempDir dir;
  write_dataset(dir / "none", {});
  EXPECT_EQ(IndexedDataset(dir / "none").tokens(), 0);
  EXPECT_EQ(verify_dataset(dir / "none", 10).largest_id, -1);
  write_dataset(dir / "gaps", {{}, {{1}, {}, {2}}, {}, {{3}}, {}});
  const DatasetReport report = verify_dataset(dir / "gaps", 10);
  EXPECT_EQ(report.documents, 5);
  EXPECT_EQ(report.empty_documents, 3);
  EXPECT_EQ(report.sequences, 4);
  EXPECT_EQ(report.tokens, 3);
  EXPECT_EQ(IndexedDataset(dir / "gaps").document_of(3), 3);
}

TEST(IndexedDataset, ReadsLongSequencesInPieces) {
  const TempDir dir;
  std::vector<int32_t> ids(100003);
  std::iota(ids.begin(), ids.end(), 0);
  for (TokenType type : {TokenType::i32, TokenType::i64}) {
    write_dataset(dir / "long", {{{9}}, {ids}}, type);
    EXPECT_EQ(read_sequence(IndexedDataset(dir / "long"), 1), ids);
    EXPECT_EQ(verify_dataset(dir / "long", 100003).longest_sequence, 100003);
  }
}

TEST(SequenceLengths, FindsEveryPositionAcrossBlocks) {
  std::vector<int32_t> lengths;
  for (int i = 0; i < 300; ++i) lengths.push_back(i % 100 < 80 ? i % 3 : 0);
  const SequenceLengths all(lengths);
  int64_t position = 0;
  for (int64_t i = 0; i < 300; ++i) {
    EXPECT_EQ(all.start(i), position);
    for (int32_t k = 0; k < lengths[static_cast<size_t>(i)]; ++k)
      EXPECT_EQ(all.find(position++), i);
  }
  EXPECT_EQ(all.start(300), position);
  EXPECT_EQ(all.tokens(), position);
  EXPECT_THROW(all.find(position), Error);
}

// BR-25: three documents of 1.2 billion 16-bit tokens, 7.2 GB of which a few KiB are stored.
class SparseDataset : public ::testing::Test {
 protected:
  static constexpr int64_t kLength = 1'200'000'000;

  void make(const std::string& prefix, int mark) {
    std::string idx = kGoldenIdx.substr(0, 34);
    idx = put(put(idx, 18, 3, 8), 26, 4, 8);
    const auto add = [&idx](int64_t value, size_t width) {
      idx.append(reinterpret_cast<const char*>(&value), width);
    };
    for (int i = 0; i < 3; ++i) add(kLength, 4);
    for (int64_t i = 0; i < 3; ++i) add(2 * i * kLength, 8);
    for (int64_t i = 0; i < 4; ++i) add(i, 8);
    write_file(prefix + ".idx", idx);
    const int file = ::open((prefix + ".bin").c_str(), O_CREAT | O_WRONLY, 0600);
    ASSERT_GE(file, 0);
    ASSERT_EQ(::ftruncate(file, 6 * kLength), 0);
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t place : {int64_t{0}, kLength - 1}) {
        const uint16_t id = static_cast<uint16_t>(mark + 2 * i + (place != 0 ? 1 : 0));
        ASSERT_EQ(::pwrite(file, &id, 2, 2 * (i * kLength + place)), 2);
      }
    ::close(file);
  }
  static void expect_marks(const IndexedDataset& dataset, int64_t first, int mark) {
    std::vector<int32_t> two(2);
    for (int64_t i = 0; i < 3; ++i) {
      dataset.read(first + i, 0, two);
      EXPECT_EQ(two, (std::vector<int32_t>{mark + static_cast<int>(2 * i), 0}));
      dataset.read(first + i, kLength - 2, two);
      EXPECT_EQ(two, (std::vector<int32_t>{0, mark + static_cast<int>(2 * i) + 1}));
    }
  }

  TempDir dir_;
};

TEST_F(SparseDataset, OffsetsPast32Bits) {
  make(dir_ / "a", 100);
  const IndexedDataset a(dir_ / "a", 1000);
  EXPECT_EQ(a.tokens(), 3 * kLength);
  expect_marks(a, 0, 100);
  std::vector<int32_t> two(2);
  a.read_across(2 * kLength - 1, two);
  EXPECT_EQ(two, (std::vector<int32_t>{103, 104}));
}

TEST_F(SparseDataset, MergePast32BitsKeepsHoles) {
  make(dir_ / "a", 100);
  make(dir_ / "b", 200);
  const std::vector<std::string> inputs{dir_ / "a", dir_ / "b"};
  struct stat stored {};
  ASSERT_EQ(::stat((dir_ / "a.bin").c_str(), &stored), 0);
  if (stored.st_blocks > 100000) GTEST_SKIP() << "no sparse files here: 14 GB would be written";
  merge_datasets(inputs, dir_ / "both");
  const IndexedDataset both(dir_ / "both", 1000);
  EXPECT_EQ(both.tokens(), 6 * kLength);
  EXPECT_EQ(both.documents(), 6);
  expect_marks(both, 0, 100);
  expect_marks(both, 3, 200);
  ASSERT_EQ(::stat((dir_ / "both.bin").c_str(), &stored), 0);
  EXPECT_EQ(stored.st_size, 12 * kLength);
  EXPECT_LT(stored.st_blocks, 100000);
}

}  // namespace
}  // namespace trireme
