// How files are spread over the storage targets of a Lustre file system.
#pragma once

#include <cstdint>
#include <filesystem>

namespace trireme::io {

// New files of `directory` go over `count` targets in stripes of `bytes`; -1: over all. True when
// done; false when the file system is not Lustre or refuses: striping is a wish.
bool set_stripes(const std::filesystem::path& directory, int64_t count, int64_t bytes);

}  // namespace trireme::io
