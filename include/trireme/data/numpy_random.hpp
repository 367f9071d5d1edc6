// The two random generators of NumPy that decide Megatron's data order, bit for bit.
//
// They exist for compatibility only; our own random numbers are `base/random.hpp`.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace trireme {

// numpy.random.RandomState(seed): MT19937 with Knuth's initialisation.
class NumpyRandomState {
 public:
  explicit NumpyRandomState(uint32_t seed) : engine_(seed) {}
  uint32_t next32() { return static_cast<uint32_t>(engine_()); }
  // Uniform in [0, max] by masked rejection; 64-bit draws (high word first) above 2^32 - 1.
  uint64_t interval(uint64_t max);

  // numpy's shuffle of a one-dimensional array. The draws depend on the length only, not on T.
  template <class T>
  void shuffle(std::span<T> values) {
    for (size_t i = values.size(); i-- > 1;) std::swap(values[i], values[interval(i)]);
  }

 private:
  std::mt19937 engine_;
};

// numpy.random.default_rng(seed): PCG64 (XSL-RR 128/64) seeded through SeedSequence(seed).
class NumpyGenerator {
 public:
  explicit NumpyGenerator(uint32_t seed);
  uint64_t next64();
  uint32_t next32();  // low half of a 64-bit draw, then its high half
  // integers(low, high) of a 32-bit type: uniform in [low, high), by multiplication with rejection.
  int32_t integer(int32_t low, int32_t high);

 private:
  void step();

  __extension__ unsigned __int128 state_ = 0, increment_ = 0;
  uint32_t kept_half_ = 0;
  bool has_half_ = false;
};

}  // namespace trireme
