// A file written in pieces past the page cache holds the same bytes as one that was written through
// it, wherever the pieces lie; a failure of any piece comes out.
#include "io/direct_writer.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "support/checkpoint_state.hpp"
#include "support/io_interposer.hpp"

namespace trireme::io {
namespace {

using test::Call;
using test::Interposer;

class DirectWriting : public ::testing::Test {
 protected:
  static constexpr int64_t kBytes = 13'000'000;
  DirectWriting() : bytes_(kBytes) {
    std::mt19937_64 random(3);
    for (size_t i = 0; i + 8 <= bytes_.size(); i += 8) {
      const uint64_t word = random();
      std::memcpy(bytes_.data() + i, &word, sizeof(word));
    }
    PosixFile::create(path_).reserve(kBytes);
  }
  ~DirectWriting() override {
    Interposer::instance().stop();
    remove_file(path_);
  }
  // Pieces of many sizes that start anywhere, as those of small tensors do, or all at whole blocks.
  void write(bool directly, bool blocks = false) {
    PosixFile file = PosixFile::open_to_write(path_);
    DirectWriter writer(file, directly);
    std::mt19937 random(4);
    for (int64_t at = 0; at < kBytes;) {
      const int64_t most = DirectWriter::kLargestPiece >> (random() % (blocks ? 4 : 6));
      const int64_t less = blocks ? 0 : static_cast<int64_t>(random() % 5000);
      const int64_t count = std::min(kBytes - at, most - less);
      writer.write(std::span(bytes_).subspan(static_cast<size_t>(at), static_cast<size_t>(count)),
                   at);
      at += count;
    }
    writer.finish();
    file.sync();
    file.close();
  }
  bool is_right() const {
    std::vector<std::byte> found(kBytes);
    PosixFile::open_to_read(path_).read_at(found, 0);
    return std::memcmp(found.data(), bytes_.data(), found.size()) == 0;
  }
  const std::string path_ = std::filesystem::path(::testing::TempDir()) /
                            ("trireme_direct_" + std::to_string(::getpid()));
  std::vector<std::byte> bytes_;
};

TEST_F(DirectWriting, GivesTheSameBytes) {
  write(true);
  EXPECT_TRUE(is_right());
}

TEST_F(DirectWriting, IsDoneThroughThePageCacheWhereItIsNotWanted) {
  write(false);
  EXPECT_TRUE(is_right());
}

TEST_F(DirectWriting, GoesOnThroughThePageCacheWhereAPieceIsRefusedOrCutShort) {
  if (!PosixFile::open_to_write_directly(path_)) GTEST_SKIP() << "no direct writes in " << path_;
  for (const int error : {EINVAL, 0, EINTR})  // 0: half of it
    for (int64_t at = 0; at < 3; ++at) {
      PosixFile::open_to_write(path_).write_at(std::vector<std::byte>(kBytes), 0);
      Interposer::instance().watch(path_, false);
      Interposer::instance().inject({Call::write, at, error, 1});
      write(true, true);
      EXPECT_EQ(Interposer::instance().hits(), 1);
      Interposer::instance().stop();
      EXPECT_TRUE(is_right()) << error << " at " << at;
    }
}

TEST_F(DirectWriting, ReportsAFailureOfAnyPiece) {
  for (int64_t at = 0; at < 12; ++at) {
    Interposer::instance().watch(path_, false);
    Interposer::instance().inject({Call::write, at, EIO, 1});
    try {
      write(true);
      ADD_FAILURE() << "write " << at;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::io) << error.what();
      EXPECT_NE(std::string(error.what()).find("Input/output error"), std::string::npos);
    }
    EXPECT_EQ(Interposer::instance().hits(), 1);
    Interposer::instance().stop();
  }
}

}  // namespace
}  // namespace trireme::io
