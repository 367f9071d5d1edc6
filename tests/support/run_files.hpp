// Folders, files and disks of regression tests: what a run directory holds, damage, small disks.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace trireme::test {

// Every file below a folder, by relative path, with its bytes; for "nothing was touched".
std::map<std::string, std::string> snapshot(const std::filesystem::path& folder);
// Changes one bit of the byte at `offset`.
void flip_bit(const std::filesystem::path& file, int64_t offset);
// Copies a run as it was after `step`, as if the job had been killed then: its checkpoint, deck and
// the whole metrics.jsonl, later lines included.
void copy_run_at(const std::filesystem::path& from, const std::filesystem::path& to, int64_t step);

// A tmpfs of its own, where the test may mount.
class SmallDisk {
 public:
  SmallDisk(const std::filesystem::path& path, int64_t kibibytes);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }
  const std::filesystem::path& path() const { return path_; }
  bool resize(int64_t kibibytes) const;
  bool make_read_only() const;
  // Leaves less than `kibibytes` of free space.
  void fill_up_to(int64_t kibibytes) const;

 private:
  std::filesystem::path path_;
  bool mounted_;
};

// The usual deck of these tests, in `folder`/deck.ini: a small GPT on a dataset in `folder`/data
// (written on first use), dropout 0.1, cosine with warm-up, odd sizes. Later `lines`
// ("section.key=value") replace earlier values. Returns "train DECK --section.key=value ...".
std::string small_run(const std::filesystem::path& folder, const std::vector<std::string>& lines);
// A weights-only checkpoint that suits the deck; `words` as of make_weights.
void make_weights(const std::filesystem::path& folder, const std::filesystem::path& output,
                  const std::string& words);

}  // namespace trireme::test
