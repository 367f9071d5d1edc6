// The arithmetic of dropout masks, shared by both twins: a pure function of the address.
#pragma once

#include <cstdint>

#include "trireme/base/random.hpp"

namespace trireme {

// Key of one site in one step; for attention the global head takes part.
TRIREME_HOST_DEVICE inline uint64_t dropout_key(uint64_t seed, int64_t step, uint32_t site,
                                                uint32_t head = 0) {
  const uint64_t place = (static_cast<uint64_t>(site) << 32) | head;
  return mix64(mix64(seed + 0x9E3779B97F4A7C15ull) ^ mix64(place + 0xD1B54A32D192ED03ull) ^
               (static_cast<uint64_t>(step) * 0x8CB92BA72F3D8DD7ull));
}

// An element is dropped when its word is below this. Exact for any probability below 1.
TRIREME_HOST_DEVICE inline uint32_t dropout_threshold(float probability) {
  return static_cast<uint32_t>(static_cast<double>(probability) * 4294967296.0);
}

// Words of four neighbouring elements: `group` = index / 4, the element's word is index % 4.
TRIREME_HOST_DEVICE inline PhiloxWords dropout_words(uint64_t key, uint32_t group,
                                                     uint32_t position, int64_t sample) {
  const uint64_t s = static_cast<uint64_t>(sample);
  return philox(group, position, static_cast<uint32_t>(s), static_cast<uint32_t>(s >> 32), key);
}

}  // namespace trireme
