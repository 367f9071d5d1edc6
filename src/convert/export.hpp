// Private to convert: what all exports have in common.
#pragma once

#include <map>
#include <optional>

#include "convert/weights.hpp"
#include "trireme/config/settings.hpp"
#include "trireme/convert/convert.hpp"

namespace trireme::convert {

// A checkpoint that was opened, on every rank.
struct Exported {
  CheckpointFile file;
  Settings settings;  // model and data are the checkpoint's
  bool masters = false;
};
// Local. A file, or a run directory: its newest checkpoint.
Exported open_exported(const std::filesystem::path& path);

// What all tensors become without a wish: `usual`, or what the weights are stored as.
FloatType usual_type(const Exported& exported, std::optional<FloatType> usual);

}  // namespace trireme::convert
