// Where the documents of a row of tokens start. Pure.
#pragma once

#include <cstdint>
#include <span>

namespace trireme {

// starts[i] is the place of the first token of the document that token i belongs to. A document
// ends with its `end_of_document`, as Megatron-LM's get_ltor_masks_and_position_ids has it; the
// first one may have begun before the row, and counts from there.
void find_documents(std::span<const int32_t> tokens, int32_t end_of_document,
                    std::span<int32_t> starts);

}  // namespace trireme
