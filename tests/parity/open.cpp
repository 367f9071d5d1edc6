// Opens the device of one backend and lists its cases.
#include <memory>

#include "parity/twin.hpp"

namespace trireme::inline TRIREME_BACKEND {

std::shared_ptr<void> open_cases(parity::CaseList& list) {
  auto device = std::make_shared<Device>(DeviceOptions{});
  parity_cases::attention_cases(*device, list);
  parity_cases::attention_documents_cases(*device, list);
  parity_cases::decode_cases(*device, list);
  parity_cases::cross_entropy_cases(*device, list);
  parity_cases::embedding_cases(*device, list);
  parity_cases::gemm_cases(*device, list);
  parity_cases::norm_cases(*device, list);
  parity_cases::optimizer_cases(*device, list);
  parity_cases::pointwise_cases(*device, list);
  parity_cases::rope_cases(*device, list);
  return device;
}

}  // namespace trireme::inline TRIREME_BACKEND
