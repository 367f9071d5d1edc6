// The checks of BatchWalk; its arithmetic is in the header.
#include "trireme/data/batch_walk.hpp"

#include "trireme/base/error.hpp"

namespace trireme {

void BatchWalk::check() const {
  require(global > 0 && micro > 0 && data_parallel > 0, ExitCode::bad_config,
          "batch sizes must be positive: global {}, micro {}, dp {}", global, micro, data_parallel);
  require(global % (micro * data_parallel) == 0, ExitCode::bad_config,
          "global batch {} is not a multiple of micro-batch {} x dp {} = {}", global, micro,
          data_parallel, micro * data_parallel);
}

}  // namespace trireme
