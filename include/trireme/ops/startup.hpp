// What a program does first of all, before MPI starts and before anything is allocated.
#pragma once

#include <string>

namespace trireme::inline TRIREME_BACKEND {

// CPU: OpenBLAS picks its kernels when it is loaded, and a version older than the processor falls
// back to kernels without AVX, several times slower. Where that happened, sets OPENBLAS_CORETYPE
// and starts the program again with the same arguments. Does nothing where the user set that
// variable, or where the program was started again already. Call it at the start of `main`; `argv`
// ends with a null pointer.
void prepare_process(int argc, char** argv);

// The library of matrix products and its choice of kernels, and on a GPU what serves attention:
// "OpenBLAS 0.3.21, SkylakeX kernels".
std::string math_description();

}  // namespace trireme::inline TRIREME_BACKEND
