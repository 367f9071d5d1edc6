#include "convert/kept_files.hpp"

#include <array>

#include "trireme/base/error.hpp"
#include "trireme/convert/convert.hpp"
#include "trireme/io/json_text.hpp"

namespace trireme::convert {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargestFile = int64_t{256} << 20;

constexpr std::array<const char*, 9> kTokenizer = {"tokenizer.json",
                                                   "tokenizer_config.json",
                                                   "special_tokens_map.json",
                                                   "added_tokens.json",
                                                   "vocab.json",
                                                   "merges.txt",
                                                   "tokenizer.model",
                                                   "chat_template.jinja",
                                                   "chat_template.json"};

template <class Names>
std::vector<fs::path> present(const fs::path& directory, const Names& names) {
  std::vector<fs::path> found;
  std::error_code fault;
  for (const char* name : names)
    if (fs::is_regular_file(directory / name, fault)) found.push_back(directory / name);
  return found;
}

}  // namespace

std::vector<fs::path> tokenizer_files(const fs::path& directory) {
  return present(directory, kTokenizer);
}

std::vector<fs::path> kept_files(const fs::path& directory) {
  std::vector<fs::path> files = present(directory, std::array{kConfig, kGenerationConfig});
  for (const fs::path& file : tokenizer_files(directory)) files.push_back(file);
  return files;
}

void copy_files(const std::vector<fs::path>& files, const fs::path& directory) {
  std::error_code fault;
  fs::create_directories(directory, fault);
  require(!fault, ExitCode::io, "cannot make the directory {}: {}", directory.string(),
          fault.message());
  for (const fs::path& file : files)
    write_small_file(directory / file.filename(), read_small_file(file, kLargestFile));
}

fs::path kept_beside(const fs::path& checkpoint) {
  return fs::path(checkpoint).replace_extension(".hf");
}

}  // namespace trireme::convert

namespace trireme {

std::filesystem::path imported_files(const std::filesystem::path& checkpoint) {
  std::error_code fault;
  const std::filesystem::path run =
      std::filesystem::absolute(checkpoint).parent_path().parent_path() / "hf";
  for (const std::filesystem::path& directory : {convert::kept_beside(checkpoint), run})
    if (std::filesystem::is_directory(directory, fault)) return directory;
  return {};
}

}  // namespace trireme
