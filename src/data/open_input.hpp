// One input on its way to batches: source, unpacking, cutter.
#pragma once

#include <memory>
#include <vector>

#include "data/text_batch.hpp"
#include "data/tokenize_plan.hpp"

namespace trireme {

class OpenInput {
 public:
  static constexpr int64_t kChunk = int64_t{1} << 20;  // bytes read at a time

  // `pieces`: documents of text may be handed on in pieces. `input` and `options` must stay.
  OpenInput(const InputPart& input, const TokenizeOptions& options, bool pieces,
            BatchBuilder::Hand hand);

  // Reads one chunk into `chunk` and hands on what is complete; false at the end of the part.
  // Errors: no_input, io, bad_data.
  bool read(std::vector<char>& chunk);
  int64_t done() const;  // bytes of this share's work
  int64_t empty_documents() const { return documents_.empty_documents(); }

 private:
  const InputPart& input_;
  std::unique_ptr<ByteSource> source_;
  BatchBuilder batch_;
  LineCutter lines_;
  DocumentCutter documents_;
};

}  // namespace trireme
