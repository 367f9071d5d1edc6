// JSON files as hostile input: every access names the file and the place in it.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>

namespace trireme {

// All of a file of at most 1 GiB. Errors: no_input, bad_data (too long).
std::string read_whole_file(const std::string& path);

// A value and where it stands ("FILE: model.vocab"). Errors of all members: bad_data.
class JsonValue {
 public:
  // Parses a file. A key that comes twice in one object is refused.
  static JsonValue read(const std::string& path, nlohmann::json& storage);

  JsonValue(const nlohmann::json& value, std::string place)
      : value_(&value), place_(std::move(place)) {}

  const nlohmann::json& raw() const { return *value_; }
  const std::string& place() const { return place_; }
  bool is_null() const { return value_->is_null(); }
  // A member of an object; null where it is missing.
  JsonValue at(const std::string& key) const;
  // Elements of a list; none for null.
  size_t size() const;
  JsonValue item(size_t i) const;

  const std::string& text() const;
  std::string text_or(const std::string& otherwise) const;  // null: otherwise
  bool flag_or(bool otherwise) const;
  int64_t number() const;

 private:
  const nlohmann::json* value_;
  std::string place_;
};

}  // namespace trireme
