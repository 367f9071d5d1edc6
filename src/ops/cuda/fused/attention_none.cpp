// A build without cuDNN: every attention call goes to the tiled kernel.
#include "ops/cuda/attention_fused.hpp"

namespace trireme::inline TRIREME_BACKEND {

std::string attention_description() {
  return "attention by kernels of our own (built without cuDNN: slower)";
}

bool fused_attention_forward(Stream&, const AttentionForward&) {
  return false;
}
bool fused_attention_backward(Stream&, const AttentionBackward&) {
  return false;
}

}  // namespace trireme::inline TRIREME_BACKEND
