// What the case files share, compiled for each backend: inputs by address, poisoned outputs, copies
// back.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "parity/case.hpp"
#include "trireme/base/random.hpp"
#include "trireme/device/device.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace parity_cases {

using parity::Case;
using parity::CaseList;
using parity::kBf16;
using parity::kF32;
using parity::Output;

inline double tolerance_of(DType type) {
  return type == DType::bf16 ? kBf16 : kF32;
}

// Device memory of one case.
class Memory {
 public:
  explicit Memory(Device& device) : stream_(device.compute()) {}
  Stream& stream() { return stream_; }

  // Bytes that read as NaN in f32 and bf16.
  TensorView poisoned(Shape shape, DType type) {
    return upload(std::vector<std::byte>(bytes_of(shape, type), std::byte{0xFF}), shape, type);
  }
  TensorView zeros(Shape shape, DType type) {
    return upload(std::vector<std::byte>(bytes_of(shape, type)), shape, type);
  }
  // Uniform in [low, high), addressed by (name, index).
  TensorView uniform(const char* name, Shape shape, DType type, float low = -1, float high = 1) {
    const uint64_t key = name_hash(name);
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    for (size_t i = 0; i < values.size(); ++i) {
      const auto bits = static_cast<float>(mix64(key + i) >> 40);
      values[i] = low + (high - low) * bits / 16777216.0f;
    }
    return floats(values, shape, type);
  }
  TensorView floats(const std::vector<float>& values, Shape shape, DType type) {
    std::vector<std::byte> bytes(bytes_of(shape, type));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t half = to_bf16(values[i]);
      if (type == DType::bf16)
        std::memcpy(bytes.data() + 2 * i, &half, 2);
      else
        std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    }
    return upload(bytes, shape, type);
  }
  TensorView integers(const std::vector<int32_t>& values, Shape shape) {
    std::vector<std::byte> bytes(bytes_of(shape, DType::i32));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return upload(bytes, shape, DType::i32);
  }
  // Integers in [0, limit), addressed by (name, index).
  TensorView random_integers(const char* name, int64_t count, int64_t limit) {
    std::vector<int32_t> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<int32_t>(mix64(name_hash(name) + i) % static_cast<uint64_t>(limit));
    return integers(values, {count});
  }
  StepState* state(const StepState& values) {
    const TensorView memory = poisoned({static_cast<int64_t>(sizeof(StepState)) / 4}, DType::i32);
    auto* result = reinterpret_cast<StepState*>(memory.data);
    set_step(stream_, result, values);
    return result;
  }
  StepState* training_state() {
    StepState values{};
    values.seed = 1234567;
    values.step = 17;
    values.first_sample = 40;
    values.training = 1;
    return state(values);
  }
  // AdamW's segments.
  const AdamWSegment* segments(const std::vector<AdamWSegment>& list) {
    const Shape shape{static_cast<int64_t>(list.size() * sizeof(AdamWSegment)) / 4};
    std::vector<std::byte> bytes(bytes_of(shape, DType::i32));
    std::memcpy(bytes.data(), list.data(), bytes.size());
    return reinterpret_cast<const AdamWSegment*>(upload(bytes, shape, DType::i32).data);
  }

  Output read(const char* name, const TensorView& view, double tolerance) {
    std::vector<std::byte> bytes(view.bytes());
    copy_to_host(stream_, view, bytes);
    stream_.synchronize();
    Output output{name, std::vector<float>(static_cast<size_t>(view.elements())), tolerance};
    for (size_t i = 0; i < output.values.size(); ++i) {
      uint16_t half = 0;
      if (view.dtype == DType::bf16) {
        std::memcpy(&half, bytes.data() + 2 * i, 2);
        output.values[i] = from_bf16(half);
      } else {
        std::memcpy(&output.values[i], bytes.data() + 4 * i, 4);
      }
    }
    return output;
  }
  Output read(const char* name, const TensorView& view) {
    return read(name, view, tolerance_of(view.dtype));
  }
  // Loss, count, squared norm, norm and scale of a state.
  Output read_sums(const StepState* state) {
    const StepState s = get_step(stream_, state);
    return {"state",
            {s.sums[0], s.sums[1], s.sums[2], s.norm, s.gradient_scale, static_cast<float>(s.skip)},
            kF32};
  }

 private:
  static size_t bytes_of(Shape shape, DType type) {
    return static_cast<size_t>(shape.elements()) * size_of(type);
  }
  TensorView upload(const std::vector<std::byte>& bytes, Shape shape, DType type) {
    buffers_.emplace_back(bytes.size(), trireme::Memory::device);
    const TensorView view{buffers_.back().data(), shape, type};
    copy_to_device(stream_, bytes, view);
    stream_.synchronize();
    return view;
  }

  Stream& stream_;
  std::vector<Buffer> buffers_;
};

// The cases of one operation are added by a function of its file.
void attention_cases(Device& device, CaseList& list);
void attention_documents_cases(Device& device, CaseList& list);
void decode_cases(Device& device, CaseList& list);
void cross_entropy_cases(Device& device, CaseList& list);
void embedding_cases(Device& device, CaseList& list);
void gemm_cases(Device& device, CaseList& list);
void norm_cases(Device& device, CaseList& list);
void optimizer_cases(Device& device, CaseList& list);
void pointwise_cases(Device& device, CaseList& list);
void rope_cases(Device& device, CaseList& list);

}  // namespace parity_cases

}  // namespace trireme::inline TRIREME_BACKEND
