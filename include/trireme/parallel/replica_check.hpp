// Compares copies of the same values bit for bit: replicas that drift apart train another model
// than the one that is saved, and the loss does not show it.
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/process_grid.hpp"
#include "trireme/device/device.hpp"
#include "trireme/model/parameter_store.hpp"

namespace trireme {

// Names of the parameters whose values differ between ranks that must hold the same bits: all over
// dp x cp, whole ones over tp, copied KV heads over their copies, the tied table over first and
// last stage. Sorted, each once, the same on every rank; empty when all is well. Collective over
// the grid. Reads all values on the host: for checks every so many steps, behind
// GradientSync::wait_values.
std::vector<std::string> replica_mismatch(const ParameterStore& parameters, const ProcessGrid& grid,
                                          Device& device);

}  // namespace trireme
