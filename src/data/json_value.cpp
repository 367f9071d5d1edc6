#include "data/json_value.hpp"

#include <unordered_set>

#include "data/posix_file.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

constexpr int64_t kLargestFile = int64_t{1} << 30;
const nlohmann::json kNull;

// Stops at a key that comes twice in its object.
class RepeatedKeys {
 public:
  explicit RepeatedKeys(const std::string& path) : path_(path) {}
  bool see(nlohmann::json::parse_event_t event, const nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) open_.emplace_back();
    if (event == Event::object_end) open_.pop_back();
    if (event == Event::key)
      require(open_.back().insert(value.get<std::string>()).second, ExitCode::bad_data,
              "{}: the key {} comes twice in one object", path_, value.dump());
    return true;
  }

 private:
  const std::string& path_;
  std::vector<std::unordered_set<std::string>> open_;
};

}  // namespace

std::string read_whole_file(const std::string& path) {
  const InputFile file(path);
  require(file.size() <= kLargestFile, ExitCode::bad_data, "{}: {} bytes, the limit is {}", path,
          file.size(), kLargestFile);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

JsonValue JsonValue::read(const std::string& path, nlohmann::json& storage) {
  const std::string text = read_whole_file(path);
  RepeatedKeys repeated(path);
  try {
    storage = nlohmann::json::parse(
        text, [&](int, nlohmann::json::parse_event_t event, nlohmann::json& value) {
          return repeated.see(event, value);
        });
  } catch (const nlohmann::json::exception& e) {
    fail(ExitCode::bad_data, "{}: not JSON: {}", path, e.what());
  }
  return JsonValue(storage, path + ":");
}

JsonValue JsonValue::at(const std::string& key) const {
  require(value_->is_object(), ExitCode::bad_data, "{} is not an object", place_);
  const auto found = value_->find(key);
  return JsonValue(found == value_->end() ? kNull : *found,
                   place_ + (place_.ends_with(':') ? " " : ".") + key);
}

size_t JsonValue::size() const {
  if (is_null()) return 0;
  require(value_->is_array(), ExitCode::bad_data, "{} is not a list", place_);
  return value_->size();
}

JsonValue JsonValue::item(size_t i) const {
  return JsonValue((*value_)[i], fmt::format("{}[{}]", place_, i));
}

const std::string& JsonValue::text() const {
  require(value_->is_string(), ExitCode::bad_data, "{} is not a text", place_);
  return value_->get_ref<const std::string&>();
}

std::string JsonValue::text_or(const std::string& otherwise) const {
  return is_null() ? otherwise : text();
}

bool JsonValue::flag_or(bool otherwise) const {
  if (is_null()) return otherwise;
  require(value_->is_boolean(), ExitCode::bad_data, "{} is neither true nor false", place_);
  return value_->get<bool>();
}

int64_t JsonValue::number() const {
  const bool whole = value_->is_number_integer();
  const bool fits =
      whole && !(value_->is_number_unsigned() && value_->get<uint64_t>() > uint64_t{INT64_MAX});
  require(fits, ExitCode::bad_data, "{} is not a whole number", place_);
  return value_->get<int64_t>();
}

}  // namespace trireme
