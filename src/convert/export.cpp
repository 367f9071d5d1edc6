// From a checkpoint to a directory that transformers loads.
#include "convert/export.hpp"

#include <algorithm>

#include "convert/import.hpp"
#include "convert/kept_files.hpp"
#include "trireme/comm/together.hpp"
#include "trireme/config/deck.hpp"
#include "trireme/convert/hf_config.hpp"
#include "trireme/io/checkpoint_directory.hpp"
#include "trireme/io/json_text.hpp"
#include "trireme/io/safetensors.hpp"

namespace trireme {
namespace convert {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

fs::path find_checkpoint(const fs::path& path) {
  std::error_code fault;
  require(fs::exists(path, fault), ExitCode::no_input, "{}: no such checkpoint or run directory",
          path.string());
  if (!fs::is_directory(path, fault)) return path;
  const fs::path inner = path / "checkpoints";
  const auto found = list_checkpoints(fs::is_directory(inner, fault) ? inner : path);
  require(!found.empty(), ExitCode::no_input, "{}: no checkpoint (step_*.h5) there", path.string());
  return found.front().path;
}

// Whether two decks describe the same function of the weights.
bool same_function(const ModelSettings& a, const ModelSettings& b) {
  const auto key = [](const ModelSettings& m) {
    return std::make_tuple(m.family, m.layers, m.hidden, m.heads, m.kv_heads, m.head_size, m.ffn,
                           m.vocab, m.positions, m.tied, m.bias || m.qkv_bias,
                           m.bias || m.output_bias, m.bias || m.mlp_bias, m.qk_norm,
                           m.norm_epsilon);
  };
  const auto rope = [](const ModelSettings& m) {
    const bool scaled = m.rope_factor > 0;
    return std::make_tuple(m.rope_base, m.rope_factor, scaled ? m.rope_low_frequency : 0,
                           scaled ? m.rope_high_frequency : 0, scaled ? m.rope_original_length : 0);
  };
  return key(a) == key(b) && (a.family == Family::gpt2 || rope(a) == rope(b));
}

// Tokens of a training sequence, from the deck beside the checkpoint; 0 where none says.
int64_t trained_context(const fs::path& checkpoint) {
  const fs::path beside = fs::path(checkpoint).replace_extension(".json");
  std::error_code fault;
  if (!fs::is_regular_file(beside, fault)) return 0;
  const Json json = read_json_file(beside);
  if (!json.is_object() || !json.contains("deck") || !json["deck"].is_string()) return 0;
  try {
    return parse_deck(json["deck"].get<std::string>(), beside.string(), {}).settings.batch.sequence;
  } catch (const Error&) {
    return 0;  // of another version
  }
}

struct Description {
  HfModel hf;
  Json base;  // config.json that goes on, or nothing
  fs::path like;
};

// What config.json will say: the kept one, if it is of this model, else one made of the deck.
Description describe(const ExportOptions& options, const Exported& exported) {
  const ModelSettings& model = exported.settings.model;
  Description d;
  d.like = options.like.empty() ? imported_files(exported.file.path()) : options.like;
  d.hf.model = model;
  if (exported.settings.data.eod >= 0) d.hf.end_ids = {exported.settings.data.eod};
  d.hf.begin_id = exported.settings.data.eod;
  std::string wanted;
  if (!d.like.empty()) {
    const fs::path path = d.like / kConfig;
    Json config = read_json_file(path);
    const HfModel kept = read_hf_config(config, path.string(), 1);
    const bool same = same_function(kept.model, model);
    require(same || options.like.empty(), ExitCode::bad_config,
            "{} is of another model than {}: leave --like out, or name the right one",
            path.string(), exported.file.path().string());
    if (same) {
      wanted = kept.model_type;
      d.hf.type = kept.type;
      d.base = std::move(config);
    } else {
      d.hf.notes.push_back(path.string() + " is of another model and is not used");
    }
  }
  d.hf.model_type = hf_model_type(model, wanted);
  d.hf.context = options.context;
  const bool says = d.base.is_object() && d.base.contains("max_position_embeddings");
  if (d.hf.context == 0 && model.family == Family::llama && !says)
    d.hf.context = trained_context(exported.file.path());
  require(d.hf.context > 0 || model.family == Family::gpt2 || says, ExitCode::usage,
          "nothing says how long sequences may be: give --context N");
  return d;
}

// Tensors to files of at most `limit` bytes (or one tensor).
std::vector<std::vector<size_t>> shards_of(const std::vector<OutputTensor>& tensors,
                                           int64_t limit) {
  std::vector<std::vector<size_t>> shards(1);
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!shards.back().empty() && bytes + tensors[i].bytes() > limit) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(i);
    bytes += tensors[i].bytes();
  }
  return shards;
}

// Gives every tensor its place; what the files are.
std::vector<NewFile> place(std::vector<OutputTensor>& tensors, int64_t limit) {
  const auto shards = shards_of(tensors, limit);
  std::vector<NewFile> files;
  for (size_t s = 0; s < shards.size(); ++s) {
    std::vector<SafetensorsEntry> entries;
    std::map<std::string, size_t> index;
    for (const size_t i : shards[s]) {
      const OutputTensor& t = tensors[i];
      const auto* extents = t.whole.extent.data();
      entries.push_back(
          {t.name, safetensors_name(t.type), {extents, extents + t.whole.dims}, 0, 0});
      index[t.name] = i;
    }
    const SafetensorsLayout layout = lay_out_safetensors(std::move(entries));
    for (const SafetensorsEntry& entry : layout.tensors) {
      OutputTensor& tensor = tensors[index.at(entry.name)];
      tensor.file = s;
      tensor.offset = static_cast<int64_t>(layout.start.size()) + entry.first_byte;
    }
    files.push_back({shards.size() == 1
                         ? std::string("model.safetensors")
                         : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size()),
                     layout.start, layout.file_bytes()});
  }
  return files;
}

std::string index_text(const std::vector<OutputTensor>& tensors,
                       const std::vector<NewFile>& files) {
  int64_t bytes = 0, count = 0;
  nlohmann::json map;  // sorts
  for (const OutputTensor& tensor : tensors) {
    bytes += tensor.bytes();
    count += tensor.whole.elements();
    map[tensor.name] = files[tensor.file].name;
  }
  const nlohmann::json json = {{"metadata", {{"total_size", bytes}, {"total_parameters", count}}},
                               {"weight_map", map}};
  return json.dump(2) + "\n";
}

// Rank 0: everything but the weights.
void write_descriptions(const ExportOptions& options, const Description& d, FloatType type,
                        const fs::path& directory) {
  const auto write = [&](const char* name, const Json& json) {
    write_small_file(directory / name,
                     json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  };
  if (!d.like.empty()) copy_files(tokenizer_files(d.like), directory);
  std::error_code fault;
  if (fs::is_directory(options.tokenizer, fault)) {
    copy_files(tokenizer_files(options.tokenizer), directory);
  } else if (!options.tokenizer.empty()) {
    write_small_file(directory / "tokenizer.json",
                     read_small_file(options.tokenizer, int64_t{256} << 20));
  }
  if (fs::exists(directory / "tokenizer.json", fault) &&
      !fs::exists(directory / "tokenizer_config.json", fault))
    write("tokenizer_config.json", {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                    {"clean_up_tokenization_spaces", false}});
  const fs::path generation = d.like / kGenerationConfig;
  if (d.base.is_object() && fs::is_regular_file(generation, fault)) {
    write_small_file(directory / kGenerationConfig, read_small_file(generation, int64_t{1} << 20));
  } else {
    write(kGenerationConfig, hf_generation_config(d.hf));
  }
  write(kConfig, hf_config(d.hf, type, d.base));
}

// Without a wish: the type that it came in.
FloatType type_of(const ExportOptions& options, const Exported& exported, FloatType usual,
                  const TensorLink& link, const CheckpointWeights& weights) {
  if (options.type) return *options.type;
  const FloatType stored = float_type_of(weights.of(link).dtype, link.ours);
  if (exported.masters || (usual == FloatType::f16 && stored == FloatType::f32)) return usual;
  return stored;
}

}  // namespace

Exported open_exported(const fs::path& path) {
  Exported exported{CheckpointFile(find_checkpoint(path)), {}, false};
  const CheckpointHeader& header = exported.file.header();
  const std::string name = "the header of " + exported.file.path().string();
  exported.settings = parse_deck("[run]\nsteps = 0\n[batch]\nsequence = 1\nglobal = 1\n" +
                                     header.model_section + header.data_section,
                                 name, {})
                          .settings;
  exported.masters = exported.file.has_group("master");
  return exported;
}

FloatType usual_type(const Exported& exported, std::optional<FloatType> usual) {
  if (usual) return *usual;
  const StoredTensor* table = exported.file.find("weights/embedding.tokens");
  return table == nullptr ? FloatType::f32 : float_type_of(table->dtype, table->name);
}

}  // namespace convert

ConvertReport export_hugging_face(const CheckpointContext& context, const ExportOptions& options) {
  using namespace convert;
  std::optional<Exported> exported;
  std::optional<CheckpointWeights> weights;
  Description description;
  std::vector<OutputTensor> tensors;
  std::vector<NewFile> files;
  FloatType type = FloatType::f32;
  together(context.world, [&] {
    exported.emplace(open_exported(options.checkpoint));
    description = describe(options, *exported);
    const std::vector<TensorLink> links = hf_links(shape_of(exported->settings.model));
    weights.emplace(exported->file, links);
    tensors = output_tensors(links);
    const FloatType usual = usual_type(*exported, description.hf.type);
    type = options.type.value_or(usual);
    for (OutputTensor& tensor : tensors)
      tensor.type = type_of(options, *exported, usual, tensor.links.front(), *weights);
    files = place(tensors, options.shard_bytes);
  });
  const std::string index = files.size() > 1 ? index_text(tensors, files) : "";
  OutputFiles output(context.world, options.output, files);
  write_tensors(context.world, *weights, tensors, output);
  together(context.world, [&] {
    if (context.world.rank() > 0) return;
    write_descriptions(options, description, type, output.temporary());
    if (!index.empty())
      write_small_file(output.temporary() / "model.safetensors.index.json", index);
  });
  output.commit();
  ConvertReport report;
  report.written = options.output;
  report.model = description.hf.model_type;
  report.notes = description.hf.notes;
  report.parameters = shape_of(exported->settings.model).parameters();
  for (const OutputTensor& tensor : tensors) report.bytes += tensor.bytes();
  return report;
}

}  // namespace trireme
