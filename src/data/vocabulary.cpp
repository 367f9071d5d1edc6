#include "data/vocabulary.hpp"

#include "trireme/base/error.hpp"

namespace trireme {

void Vocabulary::add(std::string text, int64_t id) {
  require(!text.empty(), ExitCode::bad_data, "{}: the token of id {} is empty", where_, id);
  require(id >= 0 && id < kMostIds, ExitCode::bad_data,
          "{}: token \"{}\" has id {}; ids are 0 to {}", where_, text, id, kMostIds - 1);
  require(!has(id), ExitCode::bad_data, "{}: id {} belongs to \"{}\" and to \"{}\"", where_, id,
          has(id) ? this->text(static_cast<int32_t>(id)) : "", text);
  const auto [place, fresh] = ids_.emplace(std::move(text), static_cast<int32_t>(id));
  require(fresh, ExitCode::bad_data, "{}: token \"{}\" has ids {} and {}", where_, place->first,
          place->second, id);
  if (id >= size()) texts_.resize(static_cast<size_t>(id) + 1, nullptr);
  texts_[static_cast<size_t>(id)] = &place->first;
}

std::optional<int32_t> Vocabulary::find(std::string_view text) const {
  const auto found = ids_.find(text);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

bool Vocabulary::has(int64_t id) const {
  return id >= 0 && id < size() && texts_[static_cast<size_t>(id)] != nullptr;
}

}  // namespace trireme
