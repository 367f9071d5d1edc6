// Streams, events, memory and copies of the CUDA twin.
#include "trireme/device/device.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "trireme/ops/ops.hpp"

namespace trireme {
namespace {

std::vector<float> counting(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  return values;
}

std::vector<float> read(Stream& stream, const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.elements()));
  copy_to_host(stream, view, std::as_writable_bytes(std::span(values)));
  stream.synchronize();
  return values;
}

}  // namespace

TEST(CudaDevice, SaysWhatItIs) {
  Device device({});
  EXPECT_EQ(backend_name(), "cuda");
  EXPECT_FALSE(device_memory_is_host());
  EXPECT_GT(device.total_bytes(), device.free_bytes() / 2);
  EXPECT_NE(device.description().find("device 0 of"), std::string::npos);
  EXPECT_EQ(device.description().find("shared"), std::string::npos);
}

// More ranks than devices: the rank's device is its number modulo the devices, and the line says
// who shares.
TEST(CudaDevice, IsShared) {
  Device plain({});
  Device shared({.node_rank = 0, .node_ranks = 1000});
  EXPECT_NE(shared.description().find("shared by"), std::string::npos);
}

TEST(CudaDevice, PeakFollowsTheMathMode) {
  Device exact({}), rounded({.allow_tf32 = true});
  if (exact.peak_flops(DType::f32) == 0) GTEST_SKIP() << "no peak is known for this device";
  EXPECT_GT(rounded.peak_flops(DType::f32), 2 * exact.peak_flops(DType::f32));
  EXPECT_GT(exact.peak_flops(DType::bf16), exact.peak_flops(DType::f32));
  EXPECT_EQ(exact.peak_flops(DType::i32), 0);
}

// Marks are read behind the work between them; more pairs than before take new ones.
TEST(CudaDevice, TimerMeasuresOnTheStream) {
  Device device({});
  Stream& stream = device.compute();
  Buffer memory(size_t{256} << 20, Memory::device);
  const TensorView view{memory.data(), {int64_t{64} << 20}, DType::f32};
  StreamTimer timer;
  timer.start(stream);
  timer.stop(stream);
  EXPECT_EQ(timer.seconds(), 0) << "it is off";
  timer.switch_on(true);
  double before = 0;
  for (const int pairs : {1, 3}) {
    for (int i = 0; i < pairs; ++i) {
      timer.start(stream);
      fill_zero(stream, view);
      timer.stop(stream);
    }
    const double after = timer.seconds();
    EXPECT_GT(after, before + pairs * 1e-5) << "a quarter of a GB takes longer than that";
    EXPECT_LT(after, before + 1);
    before = after;
  }
  EXPECT_EQ(timer.seconds(), before);
  timer.switch_on(true);
  EXPECT_EQ(timer.seconds(), 0);
}

TEST(CudaDevice, CopiesAndClears) {
  Device device({});
  Stream& stream = device.compute();
  const int64_t n = 100003;
  Buffer a(4 * n, Memory::device), b(4 * n, Memory::device), pinned(4 * n, Memory::pinned);
  const TensorView from{a.data(), {n}, DType::f32}, to{b.data(), {n}, DType::f32};
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 256, 0u);
  const std::vector<float> values = counting(n);
  std::memcpy(pinned.data(), values.data(), pinned.bytes());
  copy_to_device(stream, {pinned.data(), pinned.bytes()}, from);
  copy(stream, from, to);
  EXPECT_EQ(read(stream, to), values);
  fill_zero(stream, to.range(10, 20));
  EXPECT_EQ(read(stream, to)[9], 9);
  EXPECT_EQ(read(stream, to)[15], 0);
  EXPECT_EQ(read(stream, to)[20], 20);
  EXPECT_THROW(copy(stream, from.range(0, 3), to), Error);
}

// Work on a second stream that waits for an event sees everything that came before it, however long
// that takes.
TEST(CudaDevice, EventsOrderStreams) {
  Device device({});
  const int64_t n = int64_t{1} << 24;
  Buffer a(4 * n, Memory::device), b(4 * n, Memory::device), c(4 * n, Memory::device);
  const TensorView x{a.data(), {n}, DType::f32}, sum{b.data(), {n}, DType::f32},
      seen{c.data(), {n}, DType::f32};
  const std::vector<float> ones(static_cast<size_t>(n), 1.0f);
  copy_to_device(device.compute(), std::as_bytes(std::span(ones)), x);
  device.compute().synchronize();
  Event ready, copied;
  for (int round = 0; round < 5; ++round) {
    device.compute().wait(copied);
    fill_zero(device.compute(), sum);
    for (int i = 0; i < 20; ++i) add(device.compute(), x, sum);
    device.compute().record(ready);
    device.copy().wait(ready);
    copy(device.copy(), sum, seen);
    device.copy().record(copied);
    device.copy().synchronize();
    const std::vector<float> values = read(device.copy(), seen);
    EXPECT_EQ(values.front(), 20);
    EXPECT_EQ(values.back(), 20);
  }
  EXPECT_NO_THROW(device.compute().wait(Event()));
}

TEST(CudaDevice, RefusesWhatDoesNotFit) {
  Device device({});
  try {
    const Buffer huge(device.total_bytes() * 4, Memory::device);
    FAIL() << "the device gave four times its memory";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_config);
    EXPECT_NE(std::string(error.what()).find("plan"), std::string::npos);
  }
  // The device goes on.
  EXPECT_NO_THROW(Buffer(1024, Memory::device));
}

TEST(CudaDevice, MovesBuffers) {
  Device device({});
  Buffer a(512, Memory::device);
  std::byte* const memory = a.data();
  Buffer b(std::move(a));
  EXPECT_EQ(b.data(), memory);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT(bugprone-use-after-move): a moved buffer is empty
  Buffer c(256, Memory::pinned);
  c = std::move(b);
  EXPECT_EQ(c.data(), memory);
  EXPECT_EQ(c.bytes(), 512u);
}

}  // namespace trireme
