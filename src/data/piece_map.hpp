// Where the pieces of a text go that several processes tokenize: whose file each lies in, and what
// stands before it there and in the whole. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/data/tokenize_text.hpp"

namespace trireme {

struct PiecePlace {
  int process = -1;  // not yet learned
  int64_t tokens = 0, documents = 0;
  int64_t first_in_part = 0, first_document = 0;  // tokens and documents of its process before it
  int64_t first_in_whole = 0;                     // tokens; of pieces that are known()
};

class PieceMap {
 public:
  PieceMap(int pieces, int processes);
  // What a process has finished since the last time, in the order in which it lies in its file.
  // Errors: internal (a piece that another process has finished too, or that there is not).
  void learn(int process, std::span<const PieceSize> finished);
  // So many pieces from the first on have their place in the whole.
  int known() const { return known_; }
  const PiecePlace& operator[](int piece) const { return places_[static_cast<size_t>(piece)]; }
  std::span<const PiecePlace> all() const { return places_; }

 private:
  struct Part {
    int64_t tokens = 0, documents = 0;
  };
  std::vector<PiecePlace> places_;
  std::vector<Part> parts_;  // by process, as far as learned
  int known_ = 0;
  int64_t known_tokens_ = 0;
};

}  // namespace trireme
