// Attention by the vendor's library where this build has it. `fused/` holds the two definitions;
// the build takes one of them.
#pragma once

#include <string>

#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

// False, with nothing done, for a call that the library does not take: the caller then uses the
// tiled kernel.
bool fused_attention_forward(Stream& stream, const AttentionForward& call);
bool fused_attention_backward(Stream& stream, const AttentionBackward& call);

// What serves attention, for the first lines of a run: "attention by cuDNN 9.19.0".
std::string attention_description();

}  // namespace trireme::inline TRIREME_BACKEND
