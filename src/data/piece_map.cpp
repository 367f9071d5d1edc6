#include "data/piece_map.hpp"

#include "trireme/base/error.hpp"

namespace trireme {

PieceMap::PieceMap(int pieces, int processes)
    : places_(static_cast<size_t>(pieces)), parts_(static_cast<size_t>(processes)) {}

void PieceMap::learn(int process, std::span<const PieceSize> finished) {
  Part& part = parts_.at(static_cast<size_t>(process));
  for (const PieceSize& size : finished) {
    require(size.piece >= 0 && size.piece < static_cast<int>(places_.size()) &&
                places_[static_cast<size_t>(size.piece)].process < 0,
            ExitCode::internal, "piece {} of {} finished twice", size.piece, places_.size());
    places_[static_cast<size_t>(size.piece)] = {process,     size.tokens,    size.documents,
                                                part.tokens, part.documents, 0};
    part.tokens += size.tokens;
    part.documents += size.documents;
  }
  for (; known_ < static_cast<int>(places_.size()); ++known_) {
    PiecePlace& place = places_[static_cast<size_t>(known_)];
    if (place.process < 0) return;
    place.first_in_whole = known_tokens_;
    known_tokens_ += place.tokens;
  }
}

}  // namespace trireme
