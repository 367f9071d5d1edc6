// Puts right the choice of OpenBLAS kernels: see the header.
#include "trireme/ops/startup.hpp"

#include <cblas.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include "device/cpu/processors.hpp"
#include "ops/cpu/core_choice.hpp"
#include "trireme/base/error.hpp"

namespace trireme::inline TRIREME_BACKEND {

namespace {

constexpr const char* kChoice = "OPENBLAS_CORETYPE";
constexpr const char* kRestarted = "TRIREME_RESTARTED";

// OpenBLAS' names of x86 cores without AVX2, and of its fallback.
constexpr std::array<std::string_view, 19> kOldCores = {
    "katmai",    "coppermine", "northwood", "prescott",    "banias", "core2",   "penryn",
    "atom",      "dunnington", "nehalem",   "sandybridge", "athlon", "opteron", "opteron_sse3",
    "barcelona", "bobcat",     "nano",      "bulldozer",   "generic"};

bool same_word(std::string_view lower, std::string_view any) {
  return std::equal(lower.begin(), lower.end(), any.begin(), any.end(), [](char a, char b) {
    return a == static_cast<char>(std::tolower(static_cast<unsigned char>(b)));
  });
}

}  // namespace

std::string_view better_core(std::string_view core, std::string_view vectors) {
  const bool old = std::any_of(kOldCores.begin(), kOldCores.end(),
                               [&](std::string_view name) { return same_word(name, core); });
  if (!old || vectors.empty()) return "";
  return vectors == "AVX-512" ? "SKYLAKEX" : "HASWELL";
}

void prepare_process(int, char** argv) {
  if (std::getenv(kChoice) != nullptr || std::getenv(kRestarted) != nullptr) return;
  const std::string choice(better_core(openblas_get_corename(), vector_extension()));
  if (choice.empty()) return;
  setenv(kChoice, choice.c_str(), 1);
  setenv(kRestarted, "1", 1);
  execv("/proc/self/exe", argv);
  unsetenv(kChoice);  // it could not be started again: slow, but right
}

std::string math_description() {
  const std::string config = openblas_get_config();
  const size_t name_end = config.find(' ');
  const std::string version = config.substr(0, config.find(' ', name_end + 1));
  return fmt::format("{}, {} kernels", version, openblas_get_corename());
}

}  // namespace trireme::inline TRIREME_BACKEND
