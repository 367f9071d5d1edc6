// What the pipeline executor tells during a step: the chunk's events, and the end of all gradients.
#pragma once

#include "trireme/model/chunk.hpp"

namespace trireme {

// `before_use` comes for every use of a layer, in training and evaluation. `gradient_ready` comes
// once a step for each layer of the rank: when its last micro-batch is done.
class StepObserver : public ChunkObserver {
 public:
  // The action sync_gradients: every layer of this rank is done.
  virtual void all_gradients_ready() = 0;
};

}  // namespace trireme
