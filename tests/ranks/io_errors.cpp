// RANKS 1 3
// Every file call of a save fails once, on every rank, with every error that it may have: the save
// is whole or all ranks say why not, the older checkpoint is untouched, nothing is left behind, and
// the next save works.
#include <fmt/format.h>

#include "support/checkpoint_state.hpp"
#include "support/io_interposer.hpp"
#include "support/rank_test.hpp"
#include "trireme/io/background_save.hpp"

namespace trireme::test {
namespace {

const std::vector<StateTensor>& state() {
  static const std::vector<StateTensor> tensors = {
      {"weights/w", {37, 11}, DType::bf16},
      {"master/w", {37, 11}},
      {"adam_m/w", {4001}},
      {"adam_v/large", {701, 499}}};  // past the page cache
  return tensors;
}

// Errors worth trying for a call. 0 is a short write.
std::vector<int> errors_of(Call call) {
  switch (call) {
    case Call::write:
      return {ENOSPC, EIO, EDQUOT, EINTR, 0};
    case Call::create:
      return {ENOSPC, EDQUOT, EROFS, EMFILE, EINTR};
    case Call::reserve:
      return {ENOSPC, EDQUOT, EIO, EINTR, EOPNOTSUPP};
    case Call::sync:
      return {EIO, ENOSPC, EDQUOT, EINTR};
    case Call::rename:
      return {EIO, ENOSPC, EACCES};
    case Call::open:
      return {EIO, EMFILE, EINTR};
    case Call::close:
      return {EIO, EINTR};
    default:
      return {EIO};
  }
}

// What the program itself must get over.
bool harmless(Call call, int error) {
  return error == EINTR || error == 0 || (call == Call::reserve && error == EOPNOTSUPP);
}

class IoErrors : public ::testing::Test {
 protected:
  IoErrors()
      : shared_(world()),
        log_(1, LogLevel::error),
        context_{world(), device().compute(), log_},
        directory_(context_, shared_.path(), nullptr),
        saves_(context_, directory_, 1 << 20) {}
  ~IoErrors() override { Interposer::instance().stop(); }

  HeldSlices held(int64_t step) const {
    HeldSlices slices = cut_state(state(), Cut::flat, world().rank(), world().size());
    fill(state(), slices, step);
    return slices;
  }
  // "" or what all ranks were told.
  std::string save(int64_t step, bool beside) {
    const HeldSlices slices = held(step);
    try {
      if (beside) {
        saves_.start(header_at(step), slices.slices, "{}", 0);
        saves_.finish();
      } else {
        directory_.save(header_at(step), slices.slices, "{}", 0);
      }
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::io) << error.what();
      return error.what();
    }
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path()))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  // One save of step 2 with the fault on `rank`. Leaves step 1 alone in the directory.
  void try_fault(const Fault& fault, int rank, bool beside) {
    Interposer& calls = Interposer::instance();
    calls.watch(directory_.path().string(), false);
    if (world().rank() == rank) calls.inject(fault);
    const std::string text = save(2, beside);
    const int64_t hits = world().max(calls.hits());
    calls.stop();
    world().barrier();
    injected_ += hits;
    EXPECT_TRUE(text.empty() || !harmless(fault.call, fault.error)) << text;
    if (world().rank() == 0) {
      EXPECT_TRUE(read_bytes(directory_.path_of(1)) == first_);
      const auto second = directory_.path_of(2);
      // A failure after the rename leaves a whole file under its name.
      const bool there = std::filesystem::exists(second);
      EXPECT_TRUE(there || !text.empty());
      EXPECT_EQ(there ? verify(second).fault() : "", "");
      for (const std::string& name : names())
        EXPECT_TRUE(!name.ends_with(".tmp") || fault.call == Call::unlink) << name << " " << text;
      for (const std::string& name : names())
        if (name.find("step_000000001") == std::string::npos)
          std::filesystem::remove(directory_.path() / name);
    }
    world().barrier();
  }
  void try_all(bool beside) {
    ASSERT_EQ(save(1, false), "");
    if (world().rank() == 0) first_ = read_bytes(directory_.path_of(1));
    Interposer::instance().watch(directory_.path().string(), false);
    ASSERT_EQ(save(2, beside), "");
    const auto mine = Interposer::instance().counts();
    Interposer::instance().stop();
    for (const Call call : kCalls)
      for (int rank = 0; rank < world().size(); ++rank) {
        const auto found = mine.find(call);
        const int64_t count =
            world().max(world().rank() == rank && found != mine.end() ? found->second : int64_t{0});
        for (int64_t at = 0; at < count; ++at)
          for (const int error : errors_of(call)) {
            SCOPED_TRACE(fmt::format("call {} number {} of rank {} fails with {}",
                                     static_cast<int>(call), at, rank, error));
            try_fault({call, at, error}, rank, beside);
          }
      }
    EXPECT_EQ(save(2, beside), "");
    if (world().rank() == 0)
      fmt::print("{} injected errors on {} ranks, {}\n", injected_, world().size(),
                 beside ? "beside training" : "at once");
  }

  SharedDirectory shared_;
  Log log_;
  CheckpointContext context_;
  CheckpointDirectory directory_;
  BackgroundSave saves_;
  std::string first_;
  int64_t injected_ = 0;
};

TEST_F(IoErrors, NoneIsLostInASaveBesideTraining) {
  try_all(true);
}
TEST_F(IoErrors, NoneIsLostInASaveAtOnce) {
  try_all(false);
}

// A disk that takes so many bytes and no more: whatever the number, the same.
TEST_F(IoErrors, ADiskFullAtAnyByte) {
  ASSERT_EQ(save(1, false), "");
  if (world().rank() == 0) first_ = read_bytes(directory_.path_of(1));
  // From the n-th write on, every write of every rank fails.
  for (int64_t at = 0; at < 12; ++at)
    for (int rank = 0; rank < world().size(); ++rank)
      try_fault({Call::write, at, ENOSPC, 1000}, rank, at % 2 == 0);
}

}  // namespace
}  // namespace trireme::test
