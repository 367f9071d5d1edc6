// Safetensors headers, good and hostile; half precision against arithmetic.
#include "trireme/io/safetensors.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "support/sha256.hpp"
#include "trireme/base/error.hpp"
#include "trireme/io/float_type.hpp"
#include "trireme/io/foreign_model.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::string refusal(const std::string& json, int64_t bytes) {
  try {
    parse_safetensors_header(json, bytes, "file");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::bad_data);
    return e.what();
  }
  return "";
}

void expect_refused(const std::string& json, int64_t bytes, const std::string& text) {
  const std::string found = refusal(json, bytes);
  EXPECT_NE(found.find(text), std::string::npos) << json << "\n" << found;
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}

TEST(Safetensors, WritesTheReferenceBytes) {
  const SafetensorsLayout layout =
      lay_out_safetensors({{"a", "BF16", {1, 3}, 0, 0}, {"b", "F32", {2}, 0, 0}});
  const unsigned char data[] = {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0x80, 0x3f, 0, 0x40, 0x40, 0x40};
  const std::string file = layout.start + std::string(reinterpret_cast<const char*>(data), 14);
  EXPECT_EQ(file.size(), 166u);
  EXPECT_EQ(layout.file_bytes(), 166);
  const std::string digest = test::Sha256::hex(std::as_bytes(std::span(file)));
  EXPECT_TRUE(digest.starts_with("cca0e392") && digest.ends_with("63ba01")) << digest;
  const SafetensorsHeader header = parse_safetensors_header(layout.start.substr(8), 14, "file");
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.tensors[1].name, "a");
  EXPECT_EQ(header.tensors[1].shape, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(header.tensors[1].first_byte, 8);
}

TEST(Safetensors, LegalOddities) {
  EXPECT_EQ(refusal("{}", 0), "");
  EXPECT_EQ(refusal("{}    ", 0), "");
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":"b"}})", 0), "");
  // A scalar, an empty tensor, and 4-bit elements, in any order.
  EXPECT_EQ(
      refusal("{" + tensor("f", "F4", "[3,2]", "[8,11]") + "," + tensor("s", "F64", "[]", "[0,8]") +
                  "," + tensor("e", "F32", "[0,7]", "[8,8]") + "}",
              11),
      "");
}

TEST(Safetensors, HostileHeadersAreRefused) {
  const std::string good = tensor("a", "F32", "[2]", "[0,8]");
  expect_refused("", 0, "does not start with {");
  expect_refused(" {}", 0, "does not start with {");
  expect_refused("[]", 0, "does not start with {");
  expect_refused("{" + good, 8, "no JSON");
  expect_refused("{" + good + "}x", 8, "no JSON");
  expect_refused("{\"a\":\xff}", 8, "no JSON");
  expect_refused("{" + good + "," + good + "}", 8, "a twice");
  expect_refused("{" + good + "}", 9, "appended");
  expect_refused("{" + good + "}", 7, "cut short");
  expect_refused("{" + tensor("a", "F32", "[2]", "[4,12]") + "}", 12, "a hole");
  expect_refused("{" + good + "," + tensor("b", "F32", "[2]", "[4,12]") + "}", 12, "overlap");
  expect_refused("{" + good + "," + tensor("b", "F32", "[2]", "[0,8]") + "}", 8, "overlap");
  expect_refused("{" + tensor("a", "F32", "[3]", "[0,8]") + "}", 8, "should have 12 bytes");
  expect_refused("{" + tensor("a", "F32", "[2]", "[8,0]") + "}", 8, "no range");
  expect_refused("{" + tensor("a", "F32", "[2]", "[0]") + "}", 8, "no range");
  expect_refused("{" + tensor("a", "F33", "[2]", "[0,8]") + "}", 8, "unknown element type");
  expect_refused("{" + tensor("a", "F4", "[3]", "[0,1]") + "}", 1, "whole bytes");
  expect_refused("{" + tensor("a", "F32", "[-1]", "[0,8]") + "}", 8, "a negative number");
  expect_refused("{" + tensor("a", "F32", "[2.0]", "[0,8]") + "}", 8, "a fraction");
  expect_refused("{" + tensor("a", "F32", "[4611686018427387904,4]", "[0,0]") + "}", 0, "64 bits");
  expect_refused("{" + tensor("a", "F32", "[18446744073709551615]", "[0,8]") + "}", 8,
                 "out of range");
  expect_refused("{" + tensor("a", "F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,4]") + "}", 4,
                 "more than 16");
  expect_refused(R"({"a":{"dtype":"F32","shape":[2]}})", 8, "no data_offsets for a");
  expect_refused(R"({"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}})", 8,
                 "'shape' twice");
  expect_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8,
                 "unknown key 'x'");
  expect_refused(R"({"a":{"dtype":["F32"],"shape":[2],"data_offsets":[0,8]}})", 8, "an array");
  expect_refused(R"({"a":[1]})", 8, "an array where none belongs");
  expect_refused(R"({"a":null})", 8, "null");
  expect_refused(R"({"__metadata__":{"a":1}})", 0, "a number");
  expect_refused(R"({"__metadata__":{"a":{"b":"c"}}})", 0, "an object where none belongs");
  // Nested without end: refused at the first step, whatever follows.
  expect_refused("{\"a\":" + std::string(1 << 20, '['), 8, "an array where none belongs");
  expect_refused("{\"a\":" + std::string(1 << 20, '{'), 8, "no JSON");
}

TEST(Safetensors, FilesAreCheckedBeforeAnythingIsAllocated) {
  const fs::path path = fs::temp_directory_path() / fmt::format("trireme_st_{}", ::getpid());
  const auto refused = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    try {
      const SafetensorsFile file(path);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::bad_data);
      return true;
    }
    return false;
  };
  const auto length = [](uint64_t n) { return std::string(reinterpret_cast<const char*>(&n), 8); };
  EXPECT_TRUE(refused(""));
  EXPECT_TRUE(refused("1234567"));
  EXPECT_TRUE(refused(length(UINT64_MAX) + "{}"));
  EXPECT_TRUE(refused(length(100'000'001) + "{}"));
  EXPECT_TRUE(refused(length(3) + "{}"));
  EXPECT_TRUE(refused(length(2) + "{}x"));
  EXPECT_FALSE(refused(length(2) + "{}"));
  fs::remove(path);
  EXPECT_THROW(SafetensorsFile{path}, Error);
}

TEST(FloatType, HalfPrecisionByArithmetic) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = from_f16(half);
    const uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023;
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), fraction != 0);
      if (fraction == 0) {
        EXPECT_EQ(to_f16(value), half);
      }
      continue;
    }
    const double magnitude = exponent == 0
                                 ? std::ldexp(fraction, -24)
                                 : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
    ASSERT_EQ(double{value}, bits < 0x8000 ? magnitude : -magnitude) << bits;
    ASSERT_EQ(to_f16(value), half) << bits;
    // Half way to the next: to the even one; a little more: up.
    const float next = from_f16(static_cast<uint16_t>(half + 1));
    if (std::isinf(next)) continue;
    const float middle = value + (next - value) / 2;
    ASSERT_EQ(to_f16(middle), fraction % 2 == 0 ? half : half + 1) << bits;
    ASSERT_EQ(to_f16(std::nextafter(middle, next)), half + 1) << bits;
    ASSERT_EQ(to_f16(std::nextafter(middle, value)), half) << bits;
  }
  EXPECT_EQ(to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(to_f16(-1e30f), 0xfc00);
  EXPECT_TRUE(std::isnan(from_f16(to_f16(std::nanf("")))));
}

TEST(FloatType, ConversionCountsWhatDoesNotFit) {
  const float source[] = {1.0f, 1e6f, -7e4f, INFINITY, 65504.0f};
  uint16_t target[10] = {};
  const auto bytes = std::as_bytes(std::span(source));
  EXPECT_EQ(convert_floats(FloatType::f32, bytes, FloatType::f16,
                           reinterpret_cast<std::byte*>(target), 2, 5),
            2);
  EXPECT_EQ(target[0], 0x3c00);
  EXPECT_EQ(target[1], 0);
  EXPECT_EQ(target[8], 0x7bff);
}

}  // namespace
}  // namespace trireme
