// Where the documents of a row of tokens start. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace trireme {

struct DocumentSizes {
  int64_t count = 0;
  int64_t longest = 0;  // tokens

  void add(const DocumentSizes& more) {
    count += more.count;
    longest = std::max(longest, more.longest);
  }
};

// starts[i] is the place of the first token of the document that token i belongs to. A document
// ends with its `end_of_document`, as Megatron-LM's get_ltor_masks_and_position_ids has it; the
// first one may have begun before the row, and counts from there. Returns how many there are
// and how long the longest is.
DocumentSizes find_documents(std::span<const int32_t> tokens, int32_t end_of_document,
                             std::span<int32_t> starts);

}  // namespace trireme
