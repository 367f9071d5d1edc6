// Writing and merging datasets: complete or absent, and equal to one build (BR-26, BR-34).
#include "trireme/data/indexed_writer.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "support/data_files.hpp"

namespace trireme {
namespace {

using test::Documents;
using test::expect_error;
using test::read_file;
using test::read_sequence;
using test::TempDir;
using test::write_dataset;

using Names = std::vector<std::string>;

TEST(IndexedDatasetWriter, NothingIsSeenBeforeCommit) {
  const TempDir dir;
  const std::vector<int32_t> ids{1, 2, 3};
  {
    IndexedDatasetWriter writer({.prefix = dir / "x", .type = TokenType::u16});
    writer.append(ids);
    writer.end_document();
    EXPECT_FALSE(std::filesystem::exists(dir / "x.bin"));
    EXPECT_FALSE(std::filesystem::exists(dir / "x.idx"));
  }
  EXPECT_EQ(dir.names(), Names{});
}

TEST(IndexedDatasetWriter, AnOlderPairStaysUntilCommit) {
  const TempDir dir;
  write_dataset(dir / "x", {{{1}}});
  const std::vector<int32_t> ids{7, 8};
  {
    IndexedDatasetWriter writer({.prefix = dir / "x", .type = TokenType::u16});
    writer.append(ids);
    writer.end_document();
  }
  EXPECT_EQ(read_sequence(IndexedDataset(dir / "x"), 0), std::vector<int32_t>{1});
  IndexedDatasetWriter writer({.prefix = dir / "x", .type = TokenType::u16});
  writer.append(ids);
  writer.end_document();
  writer.commit();
  EXPECT_EQ(read_sequence(IndexedDataset(dir / "x"), 0), ids);
  EXPECT_EQ(dir.names(), (Names{"x.bin", "x.idx"}));
}

TEST(IndexedDatasetWriter, RefusesIdsThatDoNotFit) {
  const TempDir dir;
  for (const auto& [type, id] : std::vector<std::pair<TokenType, int32_t>>{{TokenType::u16, 65536},
                                                                           {TokenType::u16, -1},
                                                                           {TokenType::u8, 256},
                                                                           {TokenType::i8, 128},
                                                                           {TokenType::i32, -5}}) {
    IndexedDatasetWriter writer({.prefix = dir / "x", .type = type});
    expect_error(ExitCode::bad_data, {std::to_string(id), name_of(type)},
                 [&, id = id] { writer.append(std::span(&id, 1)); });
  }
}

TEST(IndexedDatasetWriter, ADirectoryThatIsMissingIsAnIoError) {
  const TempDir dir;
  expect_error(ExitCode::io, {"no/such"},
               [&] { IndexedDatasetWriter writer({.prefix = dir / "no/such/x"}); });
}

TEST(IndexedDatasetWriter, LongSequencesGoOnInTheNext) {
  const TempDir dir;
  IndexedDatasetWriter writer({.prefix = dir / "x", .type = TokenType::u16, .longest_sequence = 3});
  writer.append(std::vector<int32_t>{1, 2});
  writer.append(std::vector<int32_t>{3, 4, 5, 6, 7});
  writer.end_document();
  writer.append(std::vector<int32_t>{8});
  writer.end_document();
  writer.commit();
  const IndexedDataset dataset(dir / "x");
  EXPECT_EQ(read_sequence(dataset, 0), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(read_sequence(dataset, 1), (std::vector<int32_t>{4, 5, 6}));
  EXPECT_EQ(read_sequence(dataset, 2), (std::vector<int32_t>{7}));
  EXPECT_EQ(dataset.document_start(1), 3);
  EXPECT_EQ(dataset.documents(), 2);
}

TEST(IndexedDatasetWriter, AddDocumentCutsByLengths) {
  const TempDir dir;
  IndexedDatasetWriter writer({.prefix = dir / "x", .type = TokenType::u16});
  writer.add_document(std::vector<int32_t>{1, 2, 3}, std::vector<int32_t>{2, 0, 1});
  expect_error(ExitCode::internal, {"no sequence"}, [&] {
    writer.add_document(std::vector<int32_t>{1, 2, 3}, std::vector<int32_t>{2});
  });
}

TEST(IndexedDatasetWriter, CommitInsideADocumentIsRefused) {
  const TempDir dir;
  IndexedDatasetWriter writer({.prefix = dir / "x", .type = TokenType::u16});
  writer.append(std::vector<int32_t>{1});
  expect_error(ExitCode::internal, {"inside a document"}, [&] { writer.commit(); });
}

// BR-26: several sequences a document, a single document, an empty document.
TEST(MergeDatasets, EqualsABuildInOneGo) {
  const TempDir dir;
  const std::vector<Documents> sets{
      {{{1, 2, 3}, {4}}, {{5, 6}}}, {{{7, 8, 9, 10}}}, {{{11}}, {}, {{12}, {13, 14}}}};
  Documents all;
  std::vector<std::string> prefixes;
  for (size_t i = 0; i < sets.size(); ++i) {
    prefixes.push_back(dir / ("set" + std::to_string(i)));
    write_dataset(prefixes.back(), sets[i]);
    all.insert(all.end(), sets[i].begin(), sets[i].end());
  }
  write_dataset(dir / "whole", all);
  merge_datasets(prefixes, dir / "merged");
  EXPECT_EQ(read_file(dir / "merged.bin"), read_file(dir / "whole.bin"));
  EXPECT_EQ(read_file(dir / "merged.idx"), read_file(dir / "whole.idx"));
  EXPECT_EQ(IndexedDataset(dir / "merged").document_start(2), 3);
}

TEST(MergeDatasets, MixedWidthsAreRefusedOrConverted) {
  const TempDir dir;
  write_dataset(dir / "narrow", {{{1, 2}}}, TokenType::u16);
  write_dataset(dir / "wide", {{{70000}}}, TokenType::i32);
  const std::vector<std::string> inputs{dir / "narrow", dir / "wide"};
  expect_error(ExitCode::bad_data, {"wide.idx", "int32", "uint16"},
               [&] { merge_datasets(inputs, dir / "out"); });
  EXPECT_FALSE(std::filesystem::exists(dir / "out.idx"));
  merge_datasets(inputs, dir / "out", TokenType::i32);
  const IndexedDataset merged(dir / "out");
  EXPECT_EQ(read_sequence(merged, 0), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(read_sequence(merged, 1), (std::vector<int32_t>{70000}));
  expect_error(ExitCode::bad_data, {"70000", "uint16"},
               [&] { merge_datasets(inputs, dir / "small", TokenType::u16); });
  EXPECT_EQ(dir.names(),
            (Names{"narrow.bin", "narrow.idx", "out.bin", "out.idx", "wide.bin", "wide.idx"}));
}

TEST(MergeDatasets, OntoOneOfItsInputs) {
  const TempDir dir;
  write_dataset(dir / "a", {{{1, 2}}});
  write_dataset(dir / "b", {{{3}}});
  merge_datasets(std::vector<std::string>{dir / "a", dir / "b"}, dir / "a");
  EXPECT_EQ(IndexedDataset(dir / "a").tokens(), 3);
}

// A file-size limit stands for a full disk: the write fails half way.
TEST(IndexedDatasetWriter, AWriteThatFailsIsAnIoErrorAndLeavesNothing) {
  const TempDir dir;
  write_dataset(dir / "x", {{{1}}});
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{.rlim_cur = 3 << 20, .rlim_max = old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_error(ExitCode::io, {"x.bin", "cannot write at byte"}, [&] {
    IndexedDatasetWriter writer({.prefix = dir / "x", .type = TokenType::i32});
    const std::vector<int32_t> ids(100000, 5);
    for (int i = 0; i < 20; ++i) writer.append(ids);
    writer.end_document();
    writer.commit();
  });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_EQ(dir.names(), (Names{"x.bin", "x.idx"}));
  EXPECT_EQ(read_sequence(IndexedDataset(dir / "x"), 0), std::vector<int32_t>{1});
}

}  // namespace
}  // namespace trireme
