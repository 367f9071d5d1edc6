#include "data/open_input.hpp"

#include <algorithm>

namespace trireme {
namespace {

std::unique_ptr<ByteSource> open(const InputPart& input) {
  if (input.standard_input) return open_standard_input();
  auto file = open_file(input.path, std::max<int64_t>(input.part.begin - 1, 0));
  if (input.packing == Packing::gzip) return open_gzip(std::move(file), input.path);
  if (input.packing == Packing::zstd) return open_zstd(std::move(file), input.path);
  return file;
}

}  // namespace

OpenInput::OpenInput(const InputPart& input, const TokenizeOptions& options, bool pieces,
                     BatchBuilder::Hand hand)
    : input_(input),
      source_(open(input)),
      batch_(input.path, pieces && !input.jsonl, options.longest_document, std::move(hand)),
      lines_(input.part, batch_),
      documents_(input.part, options.document_mark, batch_) {}

bool OpenInput::read(std::vector<char>& chunk) {
  chunk.resize(static_cast<size_t>(kChunk));
  const size_t n = source_->read(chunk);
  const std::string_view text(chunk.data(), n);
  bool more = n > 0;
  if (n == 0) {
    input_.jsonl ? lines_.end_file() : documents_.end_file();
  } else {
    more = input_.jsonl ? lines_.take(text) : documents_.take(text);
  }
  if (!more) batch_.flush();
  return more;
}

int64_t OpenInput::done() const {
  return input_.standard_input ? source_->taken() : std::min(source_->taken(), input_.bytes);
}

}  // namespace trireme
