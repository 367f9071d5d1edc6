// Private to convert: the small files of a Hugging Face directory that go with the weights, and
// where an import keeps them for a later export.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trireme::convert {

constexpr const char* kConfig = "config.json";
constexpr const char* kGenerationConfig = "generation_config.json";

// Tokenizer files, and those that say how to use the model, that `directory` has.
std::vector<std::filesystem::path> kept_files(const std::filesystem::path& directory);
std::vector<std::filesystem::path> tokenizer_files(const std::filesystem::path& directory);
// Copies into `directory`, which is made.
void copy_files(const std::vector<std::filesystem::path>& files,
                const std::filesystem::path& directory);

// NAME.hf beside NAME.h5.
std::filesystem::path kept_beside(const std::filesystem::path& checkpoint);

}  // namespace trireme::convert
