// Opens, checks and reads llm.c's token files.
#include "trireme/data/llmc_dataset.hpp"

#include <glob.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "data/posix_file.hpp"
#include "trireme/base/checked.hpp"

namespace trireme {
namespace {

constexpr int64_t kHeaderBytes = 1024;
constexpr int32_t kGpt2Magic = 20240520, kLlama3Magic = 20240801;
constexpr size_t kChunk = size_t{1} << 16;  // bytes in hand at a time

bool is_pattern(const std::string& path) {
  return path.ends_with(".bin") && path.find_first_of("*?[") != std::string::npos;
}

int32_t word(std::span<const std::byte> header, size_t i) {
  int32_t value = 0;
  std::memcpy(&value, header.data() + 4 * i, 4);
  return value;
}

std::vector<std::string> matches_of(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  require(status == 0 && !paths.empty(), ExitCode::no_input, "{}: no file has such a name",
          pattern);
  std::ranges::sort(paths);
  return paths;
}

struct Header {
  int64_t width = 2, tokens = 0;
};

Header read_header(const InputFile& file) {
  require(file.size() >= kHeaderBytes, ExitCode::bad_data,
          "{}: ends at byte {}, inside the header of {} bytes", file.path(), file.size(),
          kHeaderBytes);
  std::array<std::byte, 12> raw;
  file.read_at(0, raw);
  const int32_t magic = word(raw, 0), version = word(raw, 1);
  require(magic == kGpt2Magic || magic == kLlama3Magic, ExitCode::bad_data,
          "{}: byte 0: magic number {}; token files of llm.c have {} or {}", file.path(), magic,
          kGpt2Magic, kLlama3Magic);
  const int32_t known = magic == kGpt2Magic ? 1 : 7;
  require(version == known, ExitCode::bad_data, "{}: byte 4: version {}, only {} is known",
          file.path(), version, known);
  Header header{magic == kGpt2Magic ? 2 : 4, word(raw, 2)};
  require(header.tokens >= 0, ExitCode::bad_data, "{}: byte 8: the negative count {}", file.path(),
          header.tokens);
  const int64_t expected = kHeaderBytes + header.tokens * header.width;
  require(file.size() == expected, ExitCode::bad_data,
          "{}: {} at byte {}: the header and {} ids of {} bytes take {} bytes", file.path(),
          file.size() < expected ? "ends" : "should end", std::min(file.size(), expected),
          header.tokens, header.width, expected);
  return header;
}

}  // namespace

bool names_llmc_files(const std::string& path) {
  if (is_pattern(path)) return true;
  std::error_code ignored;
  if (!path.ends_with(".bin") || !std::filesystem::is_regular_file(path, ignored)) return false;
  const InputFile file(path);
  if (file.size() < 4) return false;
  std::array<std::byte, 4> raw;
  file.read_at(0, raw);
  return word(raw, 0) == kGpt2Magic || word(raw, 0) == kLlama3Magic;
}

LlmcDataset::LlmcDataset(std::string path, int64_t vocab, std::shared_ptr<IndexMemory> memory)
    : path_(std::move(path)),
      limit_(vocab > 0 ? std::min<int64_t>(vocab, int64_t{1} << 31) : int64_t{1} << 31) {
  if (memory == nullptr) memory = std::make_shared<IndexMemory>();
  std::vector<int32_t> lengths;
  for (const std::string& name : is_pattern(path_) ? matches_of(path_) : std::vector{path_}) {
    shards_.push_back({std::make_unique<InputFile>(name)});
    const Header header = read_header(*shards_.back().file);
    shards_.back().width = header.width;
    lengths.push_back(static_cast<int32_t>(header.tokens));
  }
  const std::span<int32_t> kept = memory->take<int32_t>(std::ssize(lengths));
  if (!memory->built()) std::ranges::copy(lengths, kept.begin());
  lengths_ = SequenceLengths(kept, std::move(memory));
}

LlmcDataset::~LlmcDataset() = default;

void LlmcDataset::read(int64_t sequence, int64_t first, std::span<int32_t> out) const {
  require(sequence >= 0 && sequence < lengths_.count() && first >= 0 &&
              first + std::ssize(out) <= lengths_[sequence],
          ExitCode::internal, "{}: tokens {} to {} of shard {}", path_, first,
          first + std::ssize(out), sequence);
  const Shard& shard = shards_[static_cast<size_t>(sequence)];
  const size_t width = static_cast<size_t>(shard.width);
  std::array<std::byte, kChunk> raw;
  while (!out.empty()) {
    const size_t n = std::min(out.size(), kChunk / width);
    const int64_t at = kHeaderBytes + first * shard.width;
    shard.file->read_at(at, std::span(raw).first(n * width));
    for (size_t i = 0; i < n; ++i) {
      uint32_t id = 0;
      std::memcpy(&id, raw.data() + i * width, width);
      if (static_cast<int64_t>(id) >= limit_) [[unlikely]]
        fail(ExitCode::bad_data,
             "{}: byte {}: token id {} at position {} is outside the vocabulary of {}: the data "
             "were made with another tokenizer, or the model's vocabulary is too small",
             shard.file->path(), at + static_cast<int64_t>(i * width), id,
             first + static_cast<int64_t>(i), limit_);
      out[i] = static_cast<int32_t>(id);
    }
    out = out.subspan(n);
    first += static_cast<int64_t>(n);
  }
}

}  // namespace trireme
