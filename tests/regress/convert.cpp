// trireme convert with the program itself: import then export is bit-equal for every family, on one
// rank and on several; imported models train as PyTorch does, on any layout; what does not fit is
// named. Models and golden losses were made by tools/hf_models.py.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/run_files.hpp"
#include "support/run_program.hpp"
#include "trireme/io/foreign_model.hpp"
#include "trireme/io/safetensors.hpp"

namespace trireme::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kGolden = fs::path(TRIREME_GOLDEN) / "hf";

constexpr double kLimit = 170;  // seconds of one command

json read_json(const fs::path& path) {
  std::ifstream file(path);
  return json::parse(file, nullptr, false);
}

// dtype and bytes of every tensor, with the prefix that the original GPT-2 files lack.
std::map<std::string, std::string> bytes_of_tensors(const fs::path& directory) {
  std::map<std::string, std::string> found;
  const ForeignModel model = ForeignModel::open_hugging_face(directory);
  const bool bare = model.find("wte.weight") != nullptr;
  for (const ForeignTensor& tensor : model.tensors()) {
    if (tensor.name.ends_with(".attn.bias")) continue;
    int64_t elements = 1;
    for (const int64_t extent : tensor.shape) elements *= extent;
    std::string bytes(static_cast<size_t>(elements) * size_of(*tensor.type), '\0');
    model.read(tensor, 0, std::as_writable_bytes(std::span(bytes)));
    const bool prefixed = !bare || tensor.name == "lm_head.weight";
    found[(prefixed ? "" : "transformer.") + tensor.name] = tensor.dtype + bytes;
  }
  return found;
}

class Convert : public ::testing::Test {
 protected:
  Convert() : folder_("convert") { ::setenv("TRIREME_POISON_MEMORY", "1", 1); }

  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  void expect_done(int ranks, const std::string& words) {
    const ProgramResult result = run_trireme(ranks, words, kLimit);
    ASSERT_EQ(result.exit_code, 0) << words << "\n" << result.output;
  }
  void expect_refused(const std::string& words, const std::vector<std::string>& texts, int code) {
    const ProgramResult result = run_trireme(1, words, kLimit);
    EXPECT_EQ(result.exit_code, code) << words << "\n" << result.output;
    for (const std::string& text : texts)
      EXPECT_NE(result.output.find(text), std::string::npos) << text << "\n" << result.output;
  }
  // A copy of a golden model that may be changed.
  fs::path copy_of(const std::string& name) {
    const fs::path to = folder_ / ("copy_" + name);
    fs::remove_all(to);
    fs::copy(kGolden / name, to, fs::copy_options::recursive);
    return to;
  }
  void change_config(const fs::path& directory, const std::string& key, const json& value) {
    json config = read_json(directory / "config.json");
    config[key] = value;
    std::ofstream(directory / "config.json") << config.dump();
  }

  ScratchFolder folder_;
};

TEST_F(Convert, ImportThenExportIsBitEqual) {
  for (const char* name :
       {"gpt2", "gpt2_untied", "llama2", "llama31", "llama32", "mistral", "qwen2", "qwen3"}) {
    const std::string source = (kGolden / name).string();
    std::string want;
    for (int ranks : {1, 3}) {
      const std::string file = at(fmt::format("{}_{}.h5", name, ranks));
      const std::string out = at(fmt::format("{}_{}", name, ranks));
      expect_done(ranks, fmt::format("convert --from-hf {} --output {}", source, file));
      const std::string have = file_bytes(file);
      if (want.empty()) want = have;
      EXPECT_TRUE(have == want) << name << ": the file depends on the ranks";
      // Small files and one: with an index and without.
      const std::string shards = ranks == 3 ? " --shard-bytes 9000" : "";
      expect_done(ranks, fmt::format("convert --to-hf {} --checkpoint {}{}", out, file, shards));
      EXPECT_TRUE(bytes_of_tensors(out) == bytes_of_tensors(source)) << name;
      EXPECT_EQ(fs::exists(fs::path(out) / "model.safetensors.index.json"), ranks == 3);
      EXPECT_FALSE(fs::exists(out + ".tmp"));
    }
  }
}

TEST_F(Convert, WhatTransformersReadsIsThere) {
  expect_done(1, fmt::format("convert --from-hf {} --output {}", (kGolden / "llama31").string(),
                             at("a.h5")));
  expect_done(1, fmt::format("convert --to-hf {} --checkpoint {}", at("a"), at("a.h5")));
  const json config = read_json(folder_ / "a" / "config.json");
  const json before = read_json(kGolden / "llama31" / "config.json");
  for (const auto& [key, value] : before.items()) EXPECT_EQ(config[key], value) << key;
  EXPECT_EQ(config["rope_parameters"]["rope_theta"], 500000.0);
  EXPECT_EQ(config["rope_parameters"]["factor"], 8.0);
  const SafetensorsFile file(folder_ / "a" / "model.safetensors");
  EXPECT_EQ(file.header().metadata.at("format"), "pt");
  EXPECT_EQ(file.data_offset() % 8, 0);

  // The tokenizer and the generation settings go with the weights.
  expect_done(
      1, fmt::format("convert --from-hf {} --output {}", (kGolden / "llama2").string(), at("run")));
  expect_done(1,
              fmt::format("convert --to-hf {} --checkpoint {} --dtype bf16", at("b"), at("run")));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
    EXPECT_EQ(file_bytes(folder_ / "b" / name), file_bytes(kGolden / "llama2" / name)) << name;
  EXPECT_EQ(read_json(folder_ / "b" / "config.json")["torch_dtype"], "bfloat16");
  EXPECT_TRUE(bytes_of_tensors(folder_ / "b").at("model.norm.weight").starts_with("BF16"));
}

// 20 steps of AdamW from the imported weights, against PyTorch, on one rank and on tp 2 x pp 2;
// from a file and from the run directory that the import made.
TEST_F(Convert, ImportedModelsTrainAsPyTorchDoes) {
  for (const char* name : {"gpt2", "llama32", "qwen2", "qwen3"}) {
    const json golden = read_json(kGolden / name / "golden.json");
    expect_done(
        2, fmt::format("convert --from-hf {} --output {}", (kGolden / name).string(), at("m.h5")));
    expect_done(
        2, fmt::format("convert --from-hf {} --output {}", (kGolden / name).string(), at("m")));
    for (const char* start : {"m.ini --run.directory=", "m/deck.ini --run.directory="}) {
      const bool file = std::string(start).starts_with("m.ini");
      const std::string directory = file ? at("run") : at("m");
      const std::string layout = file ? "" : " --grid.tp=2 --grid.pp=2";
      expect_done(file ? 1 : 4,
                  fmt::format("train {}{}{} --run.steps=20 --run.seed=1234 --batch.sequence=16 "
                              "--batch.global=4 --precision.compute=f32 "
                              "--optimizer.learning_rate=1e-3 --schedule.kind=constant "
                              "--data.kind=indexed --data.path={} --data.split=1,0,0{}",
                              at(""), start, directory, (kGolden / "tokens").string(), layout));
      const std::vector<MetricsLine> metrics = read_metrics(directory);
      ASSERT_EQ(metrics.size(), golden["losses"].size());
      double loss = 0, norm = 0;
      for (size_t i = 0; i < metrics.size(); ++i) {
        loss = std::max(loss, std::fabs(metrics[i].loss / golden["losses"][i].get<double>() - 1));
        norm =
            std::max(norm, std::fabs(metrics[i].grad_norm / golden["norms"][i].get<double>() - 1));
      }
      fmt::print("{:8} {}: 20 losses within {:.1e} of PyTorch's AdamW, norms within {:.1e}\n", name,
                 file ? "one rank" : "tp 2 x pp 2", loss, norm);
      EXPECT_LT(loss, 1e-4) << name;
      EXPECT_LT(norm, 1e-3) << name;
    }
    for (const char* left : {"m.h5", "m.ini", "m.json", "m.hf", "m", "run"})
      fs::remove_all(folder_ / left);
  }
}

// An import brings its tokenizer along, whether it made a file or a run directory.
TEST_F(Convert, ImportedModelsGenerateWithTheirOwnTokenizer) {
  for (const char* output : {"named.h5", "imported"}) {
    expect_done(1, fmt::format("convert --from-hf {} --output {}", (kGolden / "llama2").string(),
                               at(output)));
    expect_done(1, fmt::format("generate {} --prompt A --tokens 2", at(output)));
  }
}

// The 50 tokens that transformers chose, on one rank and on tp 2 x pp 2. Token i is the letter 65 +
// i.
TEST_F(Convert, ImportedModelsContinueAsTransformersDoes) {
  for (const char* name : {"gpt2", "llama31", "qwen2", "qwen3"}) {
    const json golden = read_json(kGolden / name / "golden.json");
    const std::vector<int> all = golden["generated"];
    const size_t prompt_tokens = golden["prompt"];
    std::string prompt;
    for (size_t i = 0; i < prompt_tokens; ++i) prompt += static_cast<char>(65 + all[i]);
    const std::vector<int> want(all.begin() + static_cast<ptrdiff_t>(prompt_tokens), all.end());
    const std::string file = at(std::string(name) + ".h5");
    expect_done(1,
                fmt::format("convert --from-hf {} --output {}", (kGolden / name).string(), file));
    std::ofstream(folder_ / "prompt") << prompt << "\n";
    for (const char* grid : {"", " --grid.tp=2 --grid.pp=2"}) {
      const ProgramResult result = run_trireme(
          *grid == '\0' ? 1 : 4,
          fmt::format("generate {} --prompt-file {} --tokens 50 --ignore-eod --tokenizer {} "
                      "--format jsonl --precision.compute=f32{}",
                      file, at("prompt"), (kGolden / "llama2" / "tokenizer.json").string(), grid),
          kLimit);
      const size_t start = result.output.find("{\"");
      ASSERT_NE(start, std::string::npos) << result.output;
      const std::string line = result.output.substr(start, result.output.find('\n', start) - start);
      EXPECT_EQ(json::parse(line)["tokens"].get<std::vector<int>>(), want) << name << grid;
    }
  }
}

TEST_F(Convert, TrainedModelsAreExportedFromAnyLayout) {
  const std::string data = (kGolden / "tokens").string();
  expect_done(
      1, fmt::format("convert --from-hf {} --output {}", (kGolden / "qwen2").string(), at("run")));
  expect_done(2, fmt::format("train {} --run.steps=2 --batch.sequence=16 --batch.global=4 "
                             "--data.kind=indexed --data.path={} --data.split=1,0,0 --grid.tp=2 "
                             "--precision.compute=f32",
                             at("run/deck.ini"), data));
  expect_done(2,
              fmt::format("convert --to-hf {} --checkpoint {} --dtype f32", at("out"), at("run")));
  expect_done(1, fmt::format("convert --from-hf {} --output {}", at("out"), at("again.h5")));
  const auto master = read_tensors(checkpoint_path(folder_ / "run", 2), "master/");
  const auto weights = read_tensors(folder_ / "again.h5", "weights/");
  EXPECT_EQ(master.size(), weights.size());
  EXPECT_TRUE(master == weights);
}

TEST_F(Convert, WhatIsNotThereOrNotOursIsListedAtOnce) {
  const fs::path directory = copy_of("llama2");
  change_config(directory, "intermediate_size", 48);
  change_config(directory, "num_hidden_layers", 3);
  change_config(directory, "tie_word_embeddings", false);
  expect_refused(
      fmt::format("convert --from-hf {} --output {}", directory.string(), at("x.h5")),
      {"missing: model.layers.2.self_attn.q_proj.weight [24, 24]",
       "mis-shaped: model.layers.0.mlp.down_proj.weight is [24, 44], it should be [24, 48]"},
      65);
  change_config(directory, "intermediate_size", 44);
  change_config(directory, "num_hidden_layers", 1);
  expect_refused(fmt::format("convert --from-hf {} --output {}", directory.string(), at("x.h5")),
                 {"surplus: model.layers.1.mlp.up_proj.weight [44, 24]"}, 65);
  EXPECT_FALSE(fs::exists(folder_ / "x.h5"));
  EXPECT_FALSE(fs::exists(folder_ / "x.h5.tmp"));

  const fs::path mistral = copy_of("mistral");
  change_config(mistral, "sliding_window", 32);
  change_config(mistral, "hidden_act", "gelu");
  change_config(mistral, "rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 1e4}});
  expect_refused(fmt::format("convert --from-hf {} --output {}", mistral.string(), at("x.h5")),
                 {"sliding_window = 32", "hidden_act = gelu", "rope_type = \"yarn\""}, 65);
  change_config(mistral, "hidden_act", "silu");
  change_config(mistral, "rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}});
  expect_done(1, fmt::format("convert --from-hf {} --output {} --context 32", mistral.string(),
                             at("w.h5")));
  expect_done(1, fmt::format("convert --to-hf {} --checkpoint {}", at("w"), at("w.h5")));
  EXPECT_EQ(read_json(folder_ / "w" / "config.json")["sliding_window"], 32);
}

TEST_F(Convert, DamagedFilesAreRefused) {
  const fs::path shards = copy_of("llama31");
  fs::remove(shards / "model-00002-of-00003.safetensors");
  expect_refused(fmt::format("convert --from-hf {} --output {}", shards.string(), at("x.h5")),
                 {"model-00002-of-00003.safetensors is missing"}, 65);
  const fs::path cut = copy_of("gpt2");
  fs::resize_file(cut / "model.safetensors", fs::file_size(cut / "model.safetensors") - 1);
  expect_refused(fmt::format("convert --from-hf {} --output {}", cut.string(), at("x.h5")),
                 {"cut short"}, 65);
  expect_refused(fmt::format("convert --from-hf {} --output {}", at("nowhere"), at("x.h5")),
                 {"not a directory"}, 66);
  expect_refused("convert --from-hf a --to-hf b", {"one of --from-hf"}, 64);
}

TEST_F(Convert, LlmcModelsBothWays) {
  expect_done(
      2, fmt::format("convert --from-hf {} --output {}", (kGolden / "gpt2").string(), at("g.h5")));
  for (const char* dtype : {"f32", "bf16"}) {
    const std::string bin = at(fmt::format("{}.bin", dtype));
    expect_done(
        2, fmt::format("convert --to-llmc {} --checkpoint {} --dtype {}", bin, at("g.h5"), dtype));
    expect_done(2, fmt::format("convert --from-llmc {} --output {}.h5", bin, bin));
    expect_done(1, fmt::format("convert --to-llmc {}.again --checkpoint {}.h5", bin, bin));
    EXPECT_EQ(file_bytes(bin), file_bytes(bin + ".again"));
  }
  // By hand: header, the padded table, then positions.
  const std::string bytes = file_bytes(folder_ / "f32.bin");
  const auto word = [&](size_t i) {
    int32_t value = 0;
    std::memcpy(&value, bytes.data() + 4 * i, 4);
    return value;
  };
  const std::vector<int32_t> header = {20240326, 3, 64, 61, 2, 4, 24, 128};
  for (size_t i = 0; i < header.size(); ++i) EXPECT_EQ(word(i), header[i]) << i;
  const auto source = bytes_of_tensors(kGolden / "gpt2");
  const std::string table = source.at("transformer.wte.weight").substr(3);
  EXPECT_EQ(bytes.substr(1024, table.size()), table);
  EXPECT_EQ(bytes.substr(1024 + table.size(), 67 * 24 * 4), std::string(67 * 24 * 4, '\0'));
  EXPECT_EQ(bytes.substr(1024 + 128 * 24 * 4, 64 * 24 * 4),
            source.at("transformer.wpe.weight").substr(3));
  // llm.c stores linears [out, in], Hugging Face's GPT-2 [in, out].
  const size_t qkv = 256 + 128 * 24 + 64 * 24 + 4 * 24;
  const std::string conv = source.at("transformer.h.0.attn.c_attn.weight").substr(3);
  for (size_t out : {0, 5, 71})
    for (size_t in : {0, 1, 23})
      EXPECT_EQ(bytes.substr(4 * (qkv + out * 24 + in), 4), conv.substr(4 * (in * 72 + out), 4));
  expect_refused(fmt::format("convert --from-llmc {} --output {}", at("g.h5"), at("y.h5")),
                 {"not an llm.c GPT-2 model"}, 65);
}

}  // namespace
}  // namespace trireme::test
