// Names, trial, clean-up, search and pruning. Rank 0 decides; the others learn.
#include "trireme/io/checkpoint_directory.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "io/checkpoint_format.hpp"
#include "io/failure.hpp"
#include "io/posix_file.hpp"
#include "io/striping.hpp"

namespace trireme {
namespace {

constexpr const char* kPrefix = "step_";
constexpr size_t kLeastDigits = 9;

// Step of a file named step_DIGITS + suffix; none for other names.
std::optional<int64_t> step_of(const std::string& name, const std::string& suffix) {
  const std::string prefix = kPrefix;
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return std::nullopt;
  if (name.size() < prefix.size() + kLeastDigits + suffix.size()) return std::nullopt;
  const char* first = name.data() + prefix.size();
  const char* last = name.data() + name.size() - suffix.size();
  int64_t step = 0;
  const auto [end, error] = std::from_chars(first, last, step);
  if (error != std::errc() || end != last || *first == '-') return std::nullopt;
  return step;
}

std::string stem_of(int64_t step) {
  return fmt::format("{}{:09}", kPrefix, step);
}

bool is_probe(const std::string& name) {
  return name.starts_with("probe.") && name.ends_with(".tmp");
}

void remove_checkpoint(const std::filesystem::path& path) {
  io::remove_file(path);
  std::filesystem::path beside = path;
  io::remove_file(beside.replace_extension(".json"));
}

// What jobs that were killed left behind.
void remove_leftovers(const std::filesystem::path& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const bool temporary = step_of(name, ".h5.tmp") || step_of(name, ".json.tmp") || is_probe(name);
    const auto described = step_of(name, ".json");
    const bool orphan =
        described && !std::filesystem::exists(directory / (stem_of(*described) + ".h5"));
    if (temporary || orphan) io::remove_file(entry.path());
  }
}

// Everything that a save does, on a small file. Leaves `probe` for the other ranks to see.
void try_directory(const std::filesystem::path& directory, const std::string& probe) {
  constexpr int64_t kTrialBytes = int64_t{1} << 20;
  const std::filesystem::path trial = directory / "probe.trial.tmp";
  io::remove_file(trial);
  try {
    io::PosixFile file = io::PosixFile::create(trial);
    file.reserve(kTrialBytes);
    file.write_at(std::as_bytes(std::span(probe)), 0);
    file.sync();
    file.close();
    io::rename_file(trial, directory / probe);
    io::sync_directory(directory);
  } catch (...) {
    ::unlink(trial.c_str());
    ::unlink((directory / probe).c_str());
    throw;
  }
}

std::string join(const std::vector<NamedCheckpoint>& files) {
  std::string text;
  for (const NamedCheckpoint& file : files) text += file.path.string() + '\0';
  return text;
}

std::vector<std::filesystem::path> separate(const std::string& text) {
  std::vector<std::filesystem::path> paths;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\0', at);
    paths.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return paths;
}

}  // namespace

std::vector<NamedCheckpoint> list_checkpoints(const std::filesystem::path& directory) {
  std::vector<NamedCheckpoint> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error))
    if (const auto step = step_of(entry.path().filename().string(), ".h5"))
      files.push_back({*step, entry.path()});
  std::sort(files.begin(), files.end(),
            [](const NamedCheckpoint& a, const NamedCheckpoint& b) { return a.step > b.step; });
  return files;
}

std::vector<NamedCheckpoint> checkpoints_to_prune(
    const std::vector<NamedCheckpoint>& complete, int64_t saved_step, int keep,
    std::span<const std::filesystem::path> protected_files) {
  std::vector<NamedCheckpoint> mine;
  for (const NamedCheckpoint& file : complete)
    if (file.step <= saved_step) mine.push_back(file);
  std::sort(mine.begin(), mine.end(),
            [](const NamedCheckpoint& a, const NamedCheckpoint& b) { return a.step > b.step; });
  if (keep <= 0 || mine.size() <= static_cast<size_t>(keep)) return {};
  mine.erase(mine.begin(), mine.begin() + keep);
  std::erase_if(mine, [&](const NamedCheckpoint& file) {
    return file.step == saved_step || std::find(protected_files.begin(), protected_files.end(),
                                                file.path) != protected_files.end();
  });
  return mine;
}

CheckpointDirectory::CheckpointDirectory(const CheckpointContext& context,
                                         const std::filesystem::path& run_directory,
                                         const RunLease* lease)
    : context_(context), path_(run_directory / "checkpoints"), lease_(lease) {
  prepare();
  if (context.hints.stripes == 0 || context.world.rank() != 0) return;
  if (!io::set_stripes(path_, context.hints.stripes, io::kLargestAlignment))
    context.log.info("{} is not on Lustre, or cannot be striped: checkpoint.stripes does nothing",
                     path_.string());
}

std::filesystem::path CheckpointDirectory::path_of(int64_t step) const {
  return path_ / (stem_of(step) + ".h5");
}

void CheckpointDirectory::prepare() const {
  const Communicator& world = context_.world;
  const bool first = world.rank() == 0;
  std::string probe;
  io::throw_first(world, io::attempt([&] {
                    if (!first) return;
                    std::error_code error;
                    std::filesystem::create_directories(path_, error);
                    require(!error, ExitCode::io, "cannot make {}: {}", path_.string(),
                            error.message());
                    remove_leftovers(path_);
                    probe = fmt::format("probe.{}.tmp", getpid());
                    try_directory(path_, probe);
                  }));
  probe = world.broadcast(probe, 0);
  const auto unseen =
      io::first_failure(world, io::attempt([&] {
                          require(std::filesystem::exists(path_ / probe), ExitCode::io,
                                  "rank {} does not see what rank 0 wrote in {}: the run directory "
                                  "must be on storage that "
                                  "all hosts share",
                                  world.rank(), path_.string());
                        }));
  io::throw_first(world, io::attempt([&] {
                    if (first) io::remove_file(path_ / probe);
                  }));
  if (unseen) throw Error(unseen->code, unseen->text);
}

std::unique_ptr<CheckpointSave> CheckpointDirectory::begin(const CheckpointHeader& header,
                                                           std::span<const GlobalSlice> slices,
                                                           SliceMemory memory) const {
  return std::make_unique<CheckpointSave>(context_, path_of(header.step), header, slices, memory);
}

FinishResult CheckpointDirectory::finish(CheckpointSave& save, int64_t step,
                                         const std::string& sidecar, int keep) const noexcept {
  FinishResult result = save.finish(sidecar, [this] {
    if (lease_ != nullptr) lease_->require_held();
  });
  if (!result.ok || context_.world.rank() != 0) return result;
  // The new file is safe by now: a removal that fails costs disk, not the run.
  if (const auto failure = io::attempt([&] { prune(step, keep); }))
    result.prune_fault = failure->text;
  return result;
}

void CheckpointDirectory::require_lease() const {
  io::throw_first(context_.world, io::attempt([&] {
                    if (lease_ != nullptr) lease_->require_held();
                  }));
}

SaveReport CheckpointDirectory::save(const CheckpointHeader& header,
                                     std::span<const GlobalSlice> slices,
                                     const std::string& sidecar, int keep) {
  const std::unique_ptr<CheckpointSave> save = begin(header, slices);
  const WriteResult mine = save->write();
  save->agree(mine);
  const SaveReport report = save->conclude(mine, finish(*save, header.step, sidecar, keep));
  if (!report.prune_fault.empty())
    context_.log.warning("old checkpoints stay: {}", report.prune_fault);
  return report;
}

void CheckpointDirectory::prune(int64_t saved_step, int keep) const {
  std::vector<NamedCheckpoint> complete;
  for (const NamedCheckpoint& file : list_checkpoints(path_))
    if (!io::attempt([&] { read_header(file.path); })) complete.push_back(file);
  const auto old = checkpoints_to_prune(complete, saved_step, keep, protected_);
  for (const NamedCheckpoint& file : old) remove_checkpoint(file.path);
  if (!old.empty()) io::sync_directory(path_);
}

std::optional<std::filesystem::path> CheckpointDirectory::newest_whole() {
  return load_newest([this](const std::filesystem::path& candidate) {
    const std::string fault = fault_of_checkpoint(context_, candidate);
    require(fault.empty(), ExitCode::bad_data, "{}", fault);
  });
}

std::optional<std::filesystem::path> CheckpointDirectory::load_newest(
    const std::function<void(const std::filesystem::path&)>& load) {
  const Communicator& world = context_.world;
  std::string names;
  if (world.rank() == 0) names = join(list_checkpoints(path_));
  const std::vector<std::filesystem::path> candidates = separate(world.broadcast(names, 0));
  std::string faults;
  for (const std::filesystem::path& candidate : candidates) {
    try {
      load(candidate);
      protect(candidate);
      return candidate;
    } catch (const Error& error) {
      const bool damaged = error.code() == ExitCode::bad_data || error.code() == ExitCode::io ||
                           error.code() == ExitCode::no_input;
      if (!damaged) throw;
      context_.log.warning("skipping broken checkpoint {}: {}", candidate.string(), error.what());
      faults += fmt::format("; {}: {}", candidate.filename().string(), error.what());
    }
  }
  require(candidates.empty(), ExitCode::bad_data,
          "none of the {} checkpoints in {} is whole{}; move them away to start from the beginning",
          candidates.size(), path_.string(), faults);
  return std::nullopt;
}

void CheckpointDirectory::set_aside_after(int64_t step) const {
  io::throw_first(context_.world, io::attempt([&] {
                    if (context_.world.rank() != 0) return;
                    for (const NamedCheckpoint& file : list_checkpoints(path_)) {
                      if (file.step <= step) continue;
                      std::filesystem::path beside = file.path;
                      beside.replace_extension(".json");
                      io::rename_file(file.path, file.path.string() + ".superseded");
                      if (std::filesystem::exists(beside))
                        io::rename_file(beside, beside.string() + ".superseded");
                    }
                    io::sync_directory(path_);
                  }));
}

}  // namespace trireme
