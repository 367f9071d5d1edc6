// Which OpenBLAS kernels suit a processor.
#pragma once

#include <string_view>

namespace trireme::inline TRIREME_BACKEND {

// The value of OPENBLAS_CORETYPE that puts right a choice of kernels from before AVX2 on a
// processor with `vectors` ("AVX-512", "AVX2" or ""); empty where the choice is not to be changed.
std::string_view better_core(std::string_view core, std::string_view vectors);

}  // namespace trireme::inline TRIREME_BACKEND
