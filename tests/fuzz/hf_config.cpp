// Any bytes as config.json; what is accepted must be written and read back as the same model.
#include "trireme/convert/hf_config.hpp"
#include "fuzz/fuzz_input.hpp"
#include "trireme/io/json_text.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trireme;
  return fuzz::read_or_refuse([&] {
    const HfModel hf =
        read_hf_config(parse_json_text(fuzz::text_of(data, size), "config.json"), "config.json");
    const HfModel again = read_hf_config(hf_config(hf, FloatType::f32), "written");
    const ModelSettings &a = hf.model, &b = again.model;
    const bool same = a.family == b.family && a.layers == b.layers && a.hidden == b.hidden &&
                      a.heads == b.heads && a.kv_heads == b.kv_heads &&
                      a.head_size == b.head_size && a.ffn == b.ffn && a.vocab == b.vocab &&
                      a.positions == b.positions && a.tied == b.tied && a.qk_norm == b.qk_norm &&
                      a.qkv_bias == b.qkv_bias && a.rope_base == b.rope_base &&
                      a.rope_factor == b.rope_factor && a.norm_epsilon == b.norm_epsilon;
    if (!same) std::abort();
  });
}
