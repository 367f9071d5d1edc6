// Every MPI return code goes through check_mpi. Private to comm.
#pragma once

#include <mpi.h>

#include <source_location>
#include <string_view>

#include "trireme/base/error.hpp"

namespace trireme::inline TRIREME_BACKEND {

// MPI itself reported a failure: what it says is all that is left to do with MPI, apart from
// MPI_Abort.
class MpiError : public Error {
 public:
  using Error::Error;
};

// Throws MpiError(peer) with MPI's own words when `code` is not MPI_SUCCESS. `call` names the call.
void check_mpi(int code, std::string_view call,
               std::source_location where = std::source_location::current());

}  // namespace trireme::inline TRIREME_BACKEND
