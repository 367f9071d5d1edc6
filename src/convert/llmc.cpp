// llm.c's GPT-2 model files: 256 words of header, then every kind of parameter for all layers
// together. Version 3 is f32, version 5 bf16; the vocabulary is padded to a multiple of 128 rows.
#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>

#include "convert/export.hpp"
#include "convert/import.hpp"
#include "trireme/base/checked.hpp"
#include "trireme/comm/together.hpp"
#include "trireme/config/layout.hpp"
#include "trireme/convert/llmc.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kMagic = 20240326, kVersionF32 = 3, kVersionBf16 = 5;
constexpr int64_t kVocabMultiple = 128;
using Header = std::array<int32_t, 256>;

// The order of kinds in the file.
constexpr std::array<const char*, 12> kKinds = {"ln1w",     "ln1b",     "qkvw",    "qkvb",
                                                "attprojw", "attprojb", "ln2w",    "ln2b",
                                                "fcw",      "fcb",      "fcprojw", "fcprojb"};

std::vector<int64_t> extents(const Shape& shape) {
  return {shape.extent.begin(), shape.extent.begin() + shape.dims};
}

}  // namespace

LlmcFile parse_llmc_header(std::span<const std::byte> start, int64_t file_bytes,
                           const std::string& file) {
  Header words;
  require(start.size() >= sizeof(words), ExitCode::bad_data, "{} is too short for an llm.c model",
          file);
  std::memcpy(words.data(), start.data(), sizeof(words));
  require(words[0] == kMagic, ExitCode::bad_data,
          "{} is not an llm.c GPT-2 model: its first word is {}, not {}", file, words[0], kMagic);
  require(words[1] == kVersionF32 || words[1] == kVersionBf16, ExitCode::bad_data,
          "{}: version {} of llm.c's model file: only 3 (f32) and 5 (bf16)", file, words[1]);
  LlmcFile llmc;
  llmc.type = words[1] == kVersionF32 ? FloatType::f32 : FloatType::bf16;
  ModelSettings& m = llmc.model;
  m.family = Family::gpt2;
  m.positions = words[2];
  m.vocab = words[3];
  m.layers = words[4];
  m.heads = m.kv_heads = words[5];
  m.hidden = words[6];
  llmc.padded_vocab = words[7];
  const bool sane = m.positions > 0 && m.vocab > 0 && m.layers > 0 && m.layers <= 1 << 16 &&
                    m.heads > 0 && m.hidden > 0 && m.hidden <= 1 << 20 && m.hidden % m.heads == 0 &&
                    llmc.padded_vocab >= m.vocab;
  require(
      sane, ExitCode::bad_data,
      "{}: positions {}, vocabulary {} (padded {}), layers {}, heads {}, width {}: no such model",
      file, m.positions, m.vocab, llmc.padded_vocab, m.layers, m.heads, m.hidden);
  m.head_size = m.hidden / m.heads;
  m.ffn = 4 * m.hidden;
  llmc.place();
  require(llmc.file_bytes == file_bytes, ExitCode::bad_data,
          "{} has {} bytes, its header describes {}: cut short, or something is appended", file,
          file_bytes, llmc.file_bytes);
  return llmc;
}

void LlmcFile::place() {
  int64_t end = sizeof(Header);
  offsets.clear();
  const ModelShape shape = convert::shape_of(model);
  std::map<std::string, Shape> wholes;
  for (const TensorLink& link : llmc_links(shape)) wholes[link.theirs] = link.whole;
  const auto put = [&](const std::string& name, int64_t elements) {
    offsets[name] = end;
    end = checked_add(end, checked_mul(elements, static_cast<int64_t>(size_of(type))));
  };
  put("wte", checked_mul(padded_vocab, model.hidden));
  put("wpe", wholes.at("wpe").elements());
  for (const char* kind : kKinds)
    for (int64_t layer = 0; layer < model.layers; ++layer) {
      const std::string name = fmt::format("h.{}.{}", layer, kind);
      put(name, wholes.at(name).elements());
    }
  put("lnfw", model.hidden);
  put("lnfb", model.hidden);
  file_bytes = end;
}

std::string LlmcFile::header() const {
  Header words{};
  words[0] = kMagic;
  words[1] = type == FloatType::f32 ? kVersionF32 : kVersionBf16;
  words[2] = static_cast<int32_t>(model.positions);
  words[3] = static_cast<int32_t>(model.vocab);
  words[4] = static_cast<int32_t>(model.layers);
  words[5] = static_cast<int32_t>(model.heads);
  words[6] = static_cast<int32_t>(model.hidden);
  words[7] = static_cast<int32_t>(padded_vocab);
  return {reinterpret_cast<const char*>(words.data()), sizeof(words)};
}

namespace {

LlmcFile read_llmc_file(const fs::path& path) {
  std::error_code fault;
  require(fs::is_regular_file(path, fault), ExitCode::no_input, "{}: no such file", path.string());
  std::ifstream file(path, std::ios::binary);
  std::array<char, sizeof(Header)> start{};
  file.read(start.data(), start.size());
  const auto got = static_cast<size_t>(file.gcount());
  return parse_llmc_header(std::as_bytes(std::span(start)).first(got),
                           static_cast<int64_t>(fs::file_size(path)), path.string());
}

}  // namespace

ConvertReport import_llmc(const CheckpointContext& context, const ImportOptions& options) {
  std::optional<convert::Imported> imported;
  together(context.world, [&] {
    const LlmcFile llmc = read_llmc_file(options.source);
    HfModel hf;
    hf.model_type = "gpt2";
    hf.model = llmc.model;
    hf.context = options.context > 0 ? options.context : llmc.model.positions;
    require(hf.context <= llmc.model.positions, ExitCode::usage,
            "--context {} is more than the model's {} positions", hf.context, llmc.model.positions);
    std::vector<TensorLink> links = llmc_links(convert::shape_of(llmc.model));
    std::vector<ForeignTensor> tensors;
    for (const TensorLink& link : links)
      if (tensors.empty() || tensors.back().name != link.theirs)
        tensors.push_back({link.theirs, safetensors_name(llmc.type), llmc.type, extents(link.whole),
                           0, llmc.offsets.at(link.theirs)});
    imported.emplace(convert::Imported{
        std::move(hf), ForeignModel(options.source, std::move(tensors)), std::move(links), {}});
  });
  return convert::finish_import(context, options, *imported);
}

ConvertReport export_llmc(const CheckpointContext& context, const ExportOptions& options) {
  using namespace convert;
  std::optional<Exported> exported;
  std::optional<CheckpointWeights> weights;
  LlmcFile llmc;
  std::vector<OutputTensor> tensors;
  together(context.world, [&] {
    exported.emplace(open_exported(options.checkpoint));
    const ModelSettings& m = exported->settings.model;
    require(hf_model_type(m, "") == "gpt2" && m.tied && m.ffn == 4 * m.hidden, ExitCode::bad_config,
            "llm.c's model file holds GPT-2 with a tied head and an MLP of 4 x hidden, and nothing "
            "else");
    llmc.model = m;
    llmc.type = options.type.value_or(usual_type(*exported, std::nullopt));
    require(llmc.type != FloatType::f16, ExitCode::usage, "llm.c's model files are f32 or bf16");
    llmc.padded_vocab = round_up(m.vocab, kVocabMultiple);
    llmc.place();
    const std::vector<TensorLink> links = llmc_links(shape_of(m));
    weights.emplace(exported->file, links);
    tensors = output_tensors(links);
    for (OutputTensor& tensor : tensors) {
      tensor.type = llmc.type;
      tensor.offset = llmc.offsets.at(tensor.name);
    }
  });
  // Rows that pad the vocabulary stay as the new file has them: zero.
  OutputFiles output(context.world, options.output, {{"", llmc.header(), llmc.file_bytes}});
  write_tensors(context.world, *weights, tensors, output);
  output.commit();
  ConvertReport report;
  report.written = options.output;
  report.model = "gpt2";
  report.parameters = shape_of(llmc.model).parameters();
  report.bytes = llmc.file_bytes;
  return report;
}

}  // namespace trireme
