#include "support/run_files.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cstdlib>
#include <fstream>

#include "support/run_program.hpp"

namespace trireme::test {

std::map<std::string, std::string> snapshot(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files[std::filesystem::relative(entry.path(), folder).string()] = file_bytes(entry.path());
  return files;
}

void flip_bit(const std::filesystem::path& path, int64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const int byte = file.get();
  file.seekp(offset);
  file.put(static_cast<char>(byte ^ 1));
  ASSERT_TRUE(file.good()) << path;
}

void copy_run_at(const std::filesystem::path& from, const std::filesystem::path& to, int64_t step) {
  std::filesystem::remove_all(to);
  std::filesystem::create_directories(to / "checkpoints");
  std::filesystem::copy_file(checkpoint_path(from, step), checkpoint_path(to, step));
  for (const char* name : {"deck.ini", "metrics.jsonl"})
    std::filesystem::copy_file(from / name, to / name);
}

SmallDisk::SmallDisk(const std::filesystem::path& path, int64_t kibibytes) : path_(path) {
  std::filesystem::create_directories(path);
  const std::string size = fmt::format("size={}k", kibibytes);
  mounted_ = ::mount("none", path.c_str(), "tmpfs", 0, size.c_str()) == 0;
}

SmallDisk::~SmallDisk() {
  if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
}

bool SmallDisk::resize(int64_t kibibytes) const {
  const std::string size = fmt::format("size={}k", kibibytes);
  return ::mount("none", path_.c_str(), "tmpfs", MS_REMOUNT, size.c_str()) == 0;
}

bool SmallDisk::make_read_only() const {
  return ::mount("none", path_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "") == 0;
}

void SmallDisk::fill_up_to(int64_t kibibytes) const {
  std::ofstream file(path_ / "other", std::ios::binary | std::ios::app);
  const std::string block(4096, 'x');
  while (std::filesystem::space(path_).free >= static_cast<uintmax_t>(kibibytes) * 1024)
    if (!(file << block << std::flush)) return;
}

std::string small_run(const std::filesystem::path& folder, const std::vector<std::string>& lines) {
  const std::filesystem::path deck = folder / "deck.ini", data = folder / "data";
  if (!std::filesystem::exists(data.string() + ".idx")) write_dataset(data, 61, 200);
  if (!std::filesystem::exists(deck))
    std::ofstream(deck) << "[run]\nsteps = 7\nseed = 11\n"
                        << "[model]\nfamily = gpt2\nlayers = 3\nhidden = 24\nheads = 4\nffn = 172\n"
                        << "vocab = 61\ndropout = 0.1\n"
                        << "[batch]\nsequence = 20\nglobal = 8\nmicro = 2\n"
                        << "[optimizer]\nlearning_rate = 2e-3\nepsilon = 1e-3\nbucket = 8000\n"
                        << "[schedule]\nkind = cosine\nwarmup = 2\nminimum = 1e-4\n"
                        << "[data]\nkind = indexed\npath = " << data.string()
                        << "\nsplit = 90,10,0\n"
                        << "[checkpoint]\nkeep = 0\n[log]\nevery = 1\n[fault]\ndeadline = 50\n";
  std::map<std::string, std::string> values;
  for (const std::string& line : lines)
    values[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
  std::string words = "train " + deck.string();
  for (const auto& [name, value] : values) {
    const char* const quote = value.find_first_of(" ;") == std::string::npos ? "" : "\"";
    words += fmt::format(" --{}={}{}{}", name, quote, value, quote);
  }
  return words;
}

void make_weights(const std::filesystem::path& folder, const std::filesystem::path& output,
                  const std::string& words) {
  small_run(folder, {});
  const ProgramResult made =
      run_command(fmt::format("mpirun -n 1 {} {} {} {}", std::getenv("TRIREME_MAKE_WEIGHTS"),
                              (folder / "deck.ini").string(), output.string(), words));
  ASSERT_EQ(made.exit_code, 0) << made.output;
}

}  // namespace trireme::test
