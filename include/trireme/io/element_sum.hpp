// The checksum of a tensor: a sum over its elements of mix(global index, bits), in two 64-bit
// lanes.
//
// A sum does not care in which order, in which pieces or by which rank its terms are added, so the
// checksum of a tensor is the same for every layout. A change of one element always changes it (the
// mixing is a bijection for a fixed index); other changes escape with probability 2^-64 or so. It
// finds accidents, it is no defence against a forger.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trireme/base/tensor.hpp"

namespace trireme {

struct ElementSum {
  uint64_t first = 0, second = 0;
  void add(const ElementSum& other) {
    first += other.first;
    second += other.second;
  }
  bool operator==(const ElementSum&) const = default;
};

// What one walk over elements finds. Integers are never NaN or infinite.
struct ElementScan {
  ElementSum sum;
  int64_t nans = 0;
  int64_t infinities = 0;
  void add(const ElementScan& other) {
    sum.add(other.sum);
    nans += other.nans;
    infinities += other.infinities;
  }
  int64_t non_finite() const { return nans + infinities; }
};

// Scans host memory: elements [first_index, first_index + bytes.size() / size_of(dtype)) of a
// tensor.
ElementScan scan_elements(DType dtype, std::span<const std::byte> bytes, int64_t first_index);

// The same sum over single bytes at [first_index, ...), where a zero byte adds nothing: the
// checksum of everything in a file that is not tensor data, most of which is zero.
ElementSum sum_bytes(std::span<const std::byte> bytes, int64_t first_index);

}  // namespace trireme
