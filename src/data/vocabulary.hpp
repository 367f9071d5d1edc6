// Token ids and their texts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme {

// Hashes strings and views alike.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
template <class Value>
using TextMap = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

class Vocabulary {
 public:
  static constexpr int64_t kMostIds = int64_t{1} << 22;

  // `where` names the file in errors.
  explicit Vocabulary(std::string where) : where_(std::move(where)) {}
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // Errors: bad_data for an id outside 0 ... kMostIds - 1, an id or a text given twice, an empty
  // text.
  void add(std::string text, int64_t id);
  std::optional<int32_t> find(std::string_view text) const;
  bool has(int64_t id) const;
  // The text of an id that is there.
  const std::string& text(int32_t id) const { return *texts_[static_cast<size_t>(id)]; }
  int64_t count() const { return static_cast<int64_t>(ids_.size()); }
  int64_t size() const { return static_cast<int64_t>(texts_.size()); }  // largest id + 1
  const std::string& where() const { return where_; }

 private:
  std::string where_;
  TextMap<int32_t> ids_;
  std::vector<const std::string*> texts_;  // keys of ids_, which do not move; null for a hole
};

}  // namespace trireme
