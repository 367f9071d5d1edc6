#include "trireme/io/json_text.hpp"

#include "io/posix_file.hpp"
#include "trireme/base/error.hpp"

namespace trireme {

nlohmann::ordered_json parse_json_text(std::string_view text, const std::string& file) {
  using Json = nlohmann::ordered_json;
  constexpr int kDeepest = 32;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    require(depth <= kDeepest, ExitCode::bad_data, "{}: nested deeper than {}", file, kDeepest);
    return true;
  };
  Json json = Json::parse(text.begin(), text.end(), watch, false);
  require(!json.is_discarded(), ExitCode::bad_data, "{} is not JSON", file);
  return json;
}

nlohmann::ordered_json read_json_file(const std::filesystem::path& path, int64_t limit) {
  return parse_json_text(read_small_file(path, limit), path.string());
}

std::string read_small_file(const std::filesystem::path& path, int64_t limit) {
  return io::read_text_file(path, limit);
}

void write_small_file(const std::filesystem::path& path, const std::string& text) {
  io::write_text_file(path, text);
}

}  // namespace trireme
