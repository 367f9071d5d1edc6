#include "app/checkpoint_arguments.hpp"

#include <filesystem>

#include "trireme/convert/convert.hpp"

namespace trireme::app {
namespace {

namespace fs = std::filesystem;

bool is_override(const std::string& word) {
  const size_t equals = word.find('=');
  return word.starts_with("--") && equals != std::string::npos && word.find('.') < equals;
}

// A tokenizer's file in the directory; empty where there is none.
std::string tokenizer_in(const fs::path& directory) {
  std::error_code fault;
  for (const char* name : {"tokenizer.json", "vocab.json", "tokenizer.model"})
    if (fs::exists(directory / name, fault)) return (directory / name).string();
  return "";
}

std::string choose(const CheckpointDeck& checkpoint) {
  const Settings& settings = checkpoint.deck.settings;
  if (!settings.data.tokenizer.empty()) return settings.data.tokenizer;
  const fs::path directory = fs::absolute(checkpoint.file).parent_path();
  const fs::path imported = imported_files(checkpoint.file);
  for (const fs::path& place : {directory, directory.parent_path(), imported})
    if (const std::string found = tokenizer_in(place); !found.empty()) return found;
  return settings.model.vocab == ByteTokenizer().vocab() ? "bytes" : "";
}

}  // namespace

SplitWords::SplitWords(std::span<const std::string> words) {
  for (const std::string& word : words) (is_override(word) ? overrides : options).push_back(word);
}

std::unique_ptr<Tokenizer> tokenizer_of(const CheckpointDeck& checkpoint, const std::string& named,
                                        const TokenizerOptions& options) {
  const std::string name = named.empty() ? choose(checkpoint) : named;
  require(
      !name.empty(), ExitCode::usage,
      "{}: neither its deck (data.tokenizer) nor a file beside it says which tokenizer made its "
      "data: give --tokenizer NAME_OR_PATH",
      checkpoint.file.string());
  std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(name, options);
  require(tokenizer->vocab() <= checkpoint.deck.settings.model.vocab, ExitCode::usage,
          "tokenizer {} has {} ids, the model's vocabulary {}: it is another model's", name,
          tokenizer->vocab(), checkpoint.deck.settings.model.vocab);
  return tokenizer;
}

}  // namespace trireme::app
