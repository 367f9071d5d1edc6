#include "trireme/data/documents.hpp"

#include "trireme/base/error.hpp"

namespace trireme {

void find_documents(std::span<const int32_t> tokens, int32_t end_of_document,
                    std::span<int32_t> starts) {
  require(tokens.size() == starts.size(), ExitCode::internal, "{} starts for {} tokens",
          starts.size(), tokens.size());
  int32_t start = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    starts[i] = start;
    if (tokens[i] == end_of_document) start = static_cast<int32_t>(i) + 1;
  }
}

}  // namespace trireme
