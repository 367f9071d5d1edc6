// RANKS 2 4
// Every state of the disk that a crash during a save can leave resumes to this step or to the one
// before.
//
// The file calls of a real asynchronous save are recorded on all ranks. Then the machine is
// imagined to stop after each of them: what was synced before is there, everything else is there or
// not, in any combination, writes also by single sectors, names in any order. Each such directory
// is given to the program's own reader.
//
// TRIREME_CRASH_STATES sets how many states are tried.
#include <fmt/format.h>

#include <map>
#include <random>
#include <set>
#include <unordered_set>

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

using Files = std::map<std::string, std::string>;  // name -> bytes

Files files_in(const std::filesystem::path& directory) {
  Files files;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    files[entry.path().filename().string()] = read_bytes(entry.path());
  return files;
}

std::string packed(const std::vector<IoRecord>& records) {
  std::string all;
  const auto text = [&all](const std::string& part) {
    all += fmt::format("{}:", part.size()) + part;
  };
  for (const IoRecord& r : records) {
    all +=
        fmt::format("{} {} {} {} {} ", static_cast<int>(r.call), r.begin, r.end, r.offset, r.size);
    text(r.path);
    text(r.other);
    text(r.bytes);
  }
  return all;
}

std::vector<IoRecord> unpacked(const std::string& all) {
  std::vector<IoRecord> records;
  std::istringstream in(all);
  const auto text = [&in] {
    size_t size = 0;
    char colon = 0;
    in >> size >> colon;
    std::string part(size, '\0');
    in.read(part.data(), static_cast<std::streamsize>(size));
    return part;
  };
  int call = 0;
  while (in >> call) {
    IoRecord r;
    r.call = static_cast<Call>(call);
    in >> r.begin >> r.end >> r.offset >> r.size;
    r.path = text();
    r.other = text();
    r.bytes = text();
    records.push_back(std::move(r));
  }
  return records;
}

// A disk as the calls changed it, with the choice of what had become durable when it stopped.
class Disk {
 public:
  Disk(const Files& before, std::vector<IoRecord> records) : records_(std::move(records)) {
    for (const auto& [name, bytes] : before) start_[name] = add_file(bytes);
    inodes_.resize(records_.size(), -1);
    std::map<std::string, int> names = start_;
    for (size_t i = 0; i < records_.size(); ++i) {
      const IoRecord& r = records_[i];
      if (r.call == Call::create) names[r.path] = add_file("");
      if (names.contains(r.path)) inodes_[i] = names[r.path];
      if (r.call == Call::unlink) names.erase(r.path);
      if (r.call == Call::rename) {
        names[r.other] = inodes_[i];
        names.erase(r.path);
      }
    }
  }
  size_t calls() const { return records_.size(); }
  const IoRecord& call(size_t i) const { return records_[i]; }

  // Whether call i is surely on the disk when the machine stops after the first `stop` calls.
  bool durable(size_t i, size_t stop) const {
    const IoRecord& r = records_[i];
    const bool of_names =
        r.call == Call::create || r.call == Call::rename || r.call == Call::unlink;
    for (size_t s = 0; s < stop; ++s) {
      const IoRecord& sync = records_[s];
      if (sync.call != Call::sync || sync.begin < r.end) continue;
      if (of_names ? sync.path.empty() : !sync.path.empty() && inodes_[s] == inodes_[i])
        return true;
    }
    return false;
  }
  bool changes(size_t i) const {
    const Call call = records_[i].call;
    return call == Call::create || call == Call::rename || call == Call::unlink ||
           call == Call::write || call == Call::reserve;
  }

  // `share` of call i: 0 nothing, 1 all, between: some sectors of a write, chosen by it.
  Files after(size_t stop, const std::map<size_t, double>& share) const {
    std::vector<std::string> contents = contents_;
    std::map<std::string, int> names = start_;
    for (size_t i = 0; i < stop; ++i) {
      const auto found = share.find(i);
      const double part = found == share.end() ? 1 : found->second;
      if (!changes(i) || part == 0) continue;
      apply(i, part, names, contents);
    }
    Files files;
    for (const auto& [name, inode] : names) files[name] = contents[static_cast<size_t>(inode)];
    return files;
  }

 private:
  int add_file(const std::string& bytes) {
    contents_.push_back(bytes);
    return static_cast<int>(contents_.size()) - 1;
  }
  void apply(size_t i, double part, std::map<std::string, int>& names,
             std::vector<std::string>& contents) const {
    const IoRecord& r = records_[i];
    const int inode = inodes_[i];
    if (r.call == Call::create) names[r.path] = inode;
    if (r.call == Call::rename) names[r.other] = inode;
    const bool leaves = r.call == Call::rename || r.call == Call::unlink;
    if (leaves && names.contains(r.path) && names[r.path] == inode) names.erase(r.path);
    if (inode < 0 || (r.call != Call::write && r.call != Call::reserve)) return;
    std::string& bytes = contents[static_cast<size_t>(inode)];
    const auto end =
        static_cast<size_t>(r.call == Call::reserve ? r.size : r.offset) + r.bytes.size();
    if (bytes.size() < end) bytes.resize(end, '\0');
    constexpr size_t kSector = 512;
    std::mt19937 random(static_cast<uint32_t>(part * 1e6));
    for (size_t at = 0; at < r.bytes.size(); at += kSector)
      if (part == 1 || random() % 2 == 0)
        bytes.replace(static_cast<size_t>(r.offset) + at, std::min(kSector, r.bytes.size() - at),
                      r.bytes, at, kSector);
  }

  std::vector<IoRecord> records_;
  std::vector<int> inodes_;  // by call
  std::vector<std::string> contents_;
  std::map<std::string, int> start_;
};

// What the program makes of such a directory: the step that it resumes from.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& run)
      : run_(run), alone_(world().split(world().rank(), 0, "alone")), log_(1, LogLevel::error) {}
  int64_t resume(const Files& files, const Files& right) {
    const auto directory = run_ / "checkpoints";
    std::filesystem::remove_all(directory);
    std::filesystem::create_directories(directory);
    for (const auto& [name, bytes] : files) write_bytes(directory / name, bytes);
    CheckpointDirectory checkpoints({alone_, device().compute(), log_}, run_, nullptr);
    const auto newest = checkpoints.newest_whole();
    if (!newest) return -1;
    EXPECT_TRUE(read_bytes(*newest) == right.at(newest->filename().string()));
    for (const auto& entry : std::filesystem::directory_iterator(directory))
      EXPECT_NE(entry.path().extension(), ".tmp");
    return read_header(*newest).step;
  }

 private:
  std::filesystem::path run_;
  Communicator alone_;
  Log log_;
};

// Tries states until the budget is used up: after every call nothing of what may be lost is lost,
// all, each one alone, all but one; then random choices.
class Explorer {
 public:
  Explorer(const Disk& disk, Reader& reader, const Files& right, int64_t step)
      : disk_(disk), reader_(reader), right_(right), step_(step) {}

  void systematic() {
    for (size_t stop = 0; stop <= disk_.calls(); ++stop) {
      const std::vector<size_t> open = undecided(stop);
      try_state(stop, {});
      try_state(stop, shares(open, 0));
      for (const size_t one : open) {
        std::map<size_t, double> only = shares(open, 0), without = shares(open, 1);
        only[one] = 1;
        without[one] = 0;
        try_state(stop, only);
        try_state(stop, without);
      }
    }
  }
  void random(int64_t states) {
    std::mt19937 random(11);
    for (int64_t tries = 0; distinct() < states && tries < 20 * states; ++tries) {
      const size_t stop = random() % (disk_.calls() + 1);
      std::map<size_t, double> choice;
      for (const size_t i : undecided(stop)) {
        const auto kind = random() % 3;
        const bool tears = kind == 2 && disk_.call(i).call == Call::write;
        choice[i] = tears       ? 0.001 + static_cast<double>(random() % 998) / 1000
                    : kind == 0 ? 0.0
                                : 1.0;
      }
      try_state(stop, choice);
    }
  }
  int64_t distinct() const { return static_cast<int64_t>(seen_.size()); }
  int64_t new_step() const { return new_step_; }

 private:
  std::vector<size_t> undecided(size_t stop) const {
    std::vector<size_t> open;
    for (size_t i = 0; i < stop; ++i)
      if (disk_.changes(i) && !disk_.durable(i, stop)) open.push_back(i);
    return open;
  }
  static std::map<size_t, double> shares(const std::vector<size_t>& calls, double share) {
    std::map<size_t, double> all;
    for (const size_t i : calls) all[i] = share;
    return all;
  }
  // Once the directory was synced with the new name in it, the new step is there for good.
  bool committed(size_t stop) const {
    const std::string name = fmt::format("step_{:09}.h5", step_);
    for (size_t i = 0; i < stop; ++i)
      if (disk_.call(i).call == Call::rename && disk_.call(i).other == name)
        return disk_.durable(i, stop);
    return false;
  }
  void try_state(size_t stop, const std::map<size_t, double>& share) {
    const Files files = disk_.after(stop, share);
    std::string all;
    for (const auto& [name, bytes] : files) all += name + '\0' + bytes + '\0';
    if (!seen_.insert(std::hash<std::string>()(all)).second) return;
    const int64_t found = reader_.resume(files, right_);
    EXPECT_TRUE(found == step_ || found == step_ - 1)
        << "resumed from " << found << ", stopped after " << stop << " of " << disk_.calls();
    EXPECT_TRUE(found == step_ || !committed(stop)) << "the new step was durable and is lost";
    new_step_ += found == step_ ? 1 : 0;
  }

  const Disk& disk_;
  Reader& reader_;
  const Files& right_;
  int64_t step_;
  std::unordered_set<size_t> seen_;
  int64_t new_step_ = 0;
};

TEST(CrashStates, EachResumesToThisStepOrTheOneBefore) {
  const SharedDirectory shared(world());
  const Log log(1, LogLevel::error);
  const CheckpointContext context{world(), device().compute(), log};
  CheckpointDirectory directory(context, shared.path() / "run", nullptr);
  BackgroundSave saves(context, directory, 1 << 20);
  Interposer& calls = Interposer::instance();
  Files before, after;
  const auto save = [&](int64_t step) {
    HeldSlices held = cut_state(state(), Cut::flat, world().rank(), world().size());
    fill(state(), held, step);
    saves.start(header_at(step), held.slices, fmt::format("{{\"step\": {}}}", step), 1);
    saves.finish();
    world().barrier();
  };
  save(4);
  if (world().rank() == 0) before = files_in(directory.path());
  world().barrier();
  calls.watch(directory.path().string(), true);
  save(5);
  const std::vector<std::string> recorded = world().gather_all(packed(calls.records()));
  calls.stop();
  Reader reader(shared.path() / "crashed");
  if (world().rank() != 0) return;
  after = files_in(directory.path());
  std::vector<IoRecord> records;
  for (const std::string& text : recorded)
    for (IoRecord& record : unpacked(text)) records.push_back(std::move(record));
  std::stable_sort(records.begin(), records.end(),
                   [](const IoRecord& a, const IoRecord& b) { return a.end < b.end; });
  const Disk disk(before, records);
  ASSERT_TRUE(disk.after(disk.calls(), {}) == after) << "the record is not what happened";

  Files right = before;
  right.insert(after.begin(), after.end());
  Explorer explorer(disk, reader, right, 5);
  explorer.systematic();
  const char* wanted = std::getenv("TRIREME_CRASH_STATES");
  explorer.random(wanted == nullptr ? 250 : std::atoll(wanted));
  fmt::print(
      "{} calls of a save by {} ranks: {} states of the disk, {} of them resume to the new "
      "step\n",
      disk.calls(), world().size(), explorer.distinct(), explorer.new_step());
  EXPECT_GE(explorer.distinct(), 150);
  EXPECT_GT(explorer.new_step(), 0);
}

}  // namespace
}  // namespace trireme::test
