#include "trireme/data/documents.hpp"

#include "trireme/base/error.hpp"

namespace trireme {

DocumentSizes find_documents(std::span<const int32_t> tokens, int32_t end_of_document,
                             std::span<int32_t> starts) {
  require(tokens.size() == starts.size(), ExitCode::internal, "{} starts for {} tokens",
          starts.size(), tokens.size());
  int32_t start = 0;
  DocumentSizes sizes;
  for (size_t i = 0; i < tokens.size(); ++i) {
    starts[i] = start;
    const auto length = static_cast<int64_t>(i) + 1 - start;
    sizes.add({.count = length == 1, .longest = length});
    if (tokens[i] == end_of_document) start = static_cast<int32_t>(i) + 1;
  }
  return sizes;
}

}  // namespace trireme
