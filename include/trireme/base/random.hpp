// Counter-based random numbers: every number is a pure function of its address, so initial weights,
// data order and dropout do not depend on the layout, and there is no generator state to save.
//
// Generator: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme {

#if defined(__CUDACC__)
#define TRIREME_HOST_DEVICE __host__ __device__
#else
#define TRIREME_HOST_DEVICE
#endif

// Four independent 32-bit words for a 128-bit counter and a 64-bit key.
struct PhiloxWords {
  uint32_t x, y, z, w;
};
TRIREME_HOST_DEVICE inline PhiloxWords philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3,
                                              uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ull * c0;
    const uint64_t p1 = 0xCD9E8D57ull * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// 64-bit finaliser of SplitMix64: a bijection that spreads every input bit.
TRIREME_HOST_DEVICE inline uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// FNV-1a of a name, finalised; with `seed` it gives the key of a named stream.
uint64_t name_hash(std::string_view name);
uint64_t stream_key(uint64_t seed, std::string_view name);

// The value N(0,1) at `index` of the stream `key`: the inverse normal distribution function at a
// 52-bit uniform, by IEEE add, multiply, divide and square root only (no libm, no contraction), so
// that every machine gives the same bits. Wichura, "Algorithm AS 241", 1988; relative error 1e-15.
double normal_at(uint64_t key, uint64_t index);

}  // namespace trireme
