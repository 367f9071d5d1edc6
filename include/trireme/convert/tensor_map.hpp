// Where each tensor of a Trireme model lies among the tensors of another program's file. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/tensor.hpp"
#include "trireme/io/foreign_model.hpp"
#include "trireme/model/model_shape.hpp"

namespace trireme {

// Element [r, k] of ours is theirs[first + r, k], or, transposed, theirs[k, first + r]. Vectors:
// [r] is theirs[first + r].
struct TensorLink {
  std::string ours;  // without "weights/"
  std::string theirs;
  Shape whole;  // of theirs
  bool transposed = false;
  int64_t first = 0;
};

// One link for each of our tensors, in the order of the model: Hugging Face's GPT-2 (whose linears
// are stored [in, out], with q, k and v in one), and Llama with its kin.
std::vector<TensorLink> hf_links(const ModelShape& model);
// llm.c's GPT-2: every linear [out, in], q, k and v in one. Names are "wte", "h.0.qkvw", ...
std::vector<TensorLink> llmc_links(const ModelShape& model);

// Takes prefixes that some files lack or have, and removes what is no weight (buffers for masks and
// rotary frequencies). A tied head that is stored all the same must hold the table's bits, and one
// stored instead of the table is taken for it. Then throws Error(bad_data) unless the model has
// just what the links name: missing, surplus and mis-shaped tensors are listed together.
void match_tensors(ForeignModel& foreign, const std::vector<TensorLink>& links, bool tied,
                   const std::string& file);

}  // namespace trireme
