// JSON files of other programs: bounded in size and depth before anything is built of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace trireme {

// Throws Error(bad_data), with `file` in the text: no JSON, or nested deeper than 32.
nlohmann::ordered_json parse_json_text(std::string_view text, const std::string& file);
// Throws Error(no_input) where there is none, Error(bad_data) where it is longer than `limit`.
nlohmann::ordered_json read_json_file(const std::filesystem::path& path,
                                      int64_t limit = int64_t{64} << 20);
std::string read_small_file(const std::filesystem::path& path, int64_t limit);
// Whole or absent. Throws Error(io).
void write_small_file(const std::filesystem::path& path, const std::string& text);

}  // namespace trireme
