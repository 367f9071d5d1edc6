// trireme convert: models of Hugging Face and llm.c to checkpoints and back, over all ranks of an
// MPI job (or one process).
#include <fmt/format.h>

#include <chrono>

#include "app/arguments.hpp"
#include "app/commands.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/mpi_session.hpp"
#include "trireme/convert/convert.hpp"

namespace trireme::app {
namespace {

constexpr const char* kUsage =
    "trireme convert --from-hf DIR --output RUN_DIR_OR_FILE.h5 [--context N]\n"
    "trireme convert --to-hf DIR --checkpoint RUN_DIR_OR_FILE.h5 [--dtype f32|bf16|f16]\n"
    "                [--like DIR] [--tokenizer DIR_OR_FILE] [--context N] [--shard-bytes N]\n"
    "trireme convert --from-llmc FILE.bin --output RUN_DIR_OR_FILE.h5\n"
    "trireme convert --to-llmc FILE.bin --checkpoint RUN_DIR_OR_FILE.h5 [--dtype f32|bf16]\n"
    "  --from-hf      a directory with config.json and safetensors: GPT-2, Llama, Mistral, Qwen2, "
    "Qwen3\n"
    "  --to-hf        a new directory that transformers loads as it is\n"
    "  --output       a run directory that then trains, or NAME.h5 with NAME.ini beside it\n"
    "  --context      longest sequence (default: the model's; of a trained model, the run's)\n"
    "  --dtype        of all weights (default: as they came, or as they are stored)\n"
    "  --like         the original directory: its config.json and tokenizer go on (default: what "
    "the import kept)\n"
    "  --tokenizer    tokenizer.json or a directory with tokenizer files\n"
    "  --shard-bytes  most bytes of a safetensors file (default: 5000000000)";

std::optional<FloatType> type_of(const Arguments& arguments) {
  const auto name = arguments.optional("dtype");
  if (!name) return std::nullopt;
  if (*name == "f32") return FloatType::f32;
  if (*name == "bf16") return FloatType::bf16;
  require(*name == "f16", ExitCode::usage, "--dtype is f32, bf16 or f16\nusage: {}", kUsage);
  return FloatType::f16;
}

ImportOptions import_options(const Arguments& arguments, const std::string& source) {
  ImportOptions options;
  options.source = arguments.one(source);
  options.output = arguments.one("output");
  options.context = arguments.number("context", 1, 0);
  return options;
}

ExportOptions export_options(const Arguments& arguments, const std::string& target) {
  ExportOptions options;
  options.output = arguments.one(target);
  options.checkpoint = arguments.one("checkpoint");
  options.type = type_of(arguments);
  options.like = arguments.optional("like").value_or("");
  options.tokenizer = arguments.optional("tokenizer").value_or("");
  options.context = arguments.number("context", 1, 0);
  options.shard_bytes = arguments.number("shard-bytes", 1, options.shard_bytes);
  return options;
}

// The one of the four directions that was asked for.
ConvertReport carry_out(const Arguments& arguments, const CheckpointContext& context) {
  int asked = 0;
  for (const char* direction : {"from-hf", "to-hf", "from-llmc", "to-llmc"})
    asked += arguments.has(direction) ? 1 : 0;
  require(asked == 1 && arguments.positions().empty(), ExitCode::usage,
          "one of --from-hf, --to-hf, --from-llmc and --to-llmc is needed\nusage: {}", kUsage);
  if (arguments.has("from-hf"))
    return import_hugging_face(context, import_options(arguments, "from-hf"));
  if (arguments.has("from-llmc"))
    return import_llmc(context, import_options(arguments, "from-llmc"));
  if (arguments.has("to-hf"))
    return export_hugging_face(context, export_options(arguments, "to-hf"));
  return export_llmc(context, export_options(arguments, "to-llmc"));
}

void print_report(const ConvertReport& report, double seconds) {
  fmt::print("{}: a {} of {} parameters, {:.1f} MB in {:.2f} s ({:.2f} GB/s)\n",
             report.written.string(), report.model, report.parameters,
             static_cast<double>(report.bytes) * 1e-6, seconds,
             static_cast<double>(report.bytes) * 1e-9 / seconds);
  if (!report.deck.empty())
    fmt::print("train it with: trireme train {} (data and steps are for you to choose)\n",
               report.deck.string());
  for (const std::string& note : report.notes) fmt::print("note: {}\n", note);
}

}  // namespace

int convert(int argc, char** argv) {
  const std::vector<std::string> words(argv + 2, argv + argc);
  MpiSession session(argc, argv);
  return run_guarded(session, [&] {
    const auto start = std::chrono::steady_clock::now();
    const Arguments arguments(words,
                              {"from-hf", "to-hf", "from-llmc", "to-llmc", "output", "checkpoint",
                               "dtype", "like", "tokenizer", "context", "shard-bytes"},
                              kUsage);
    const Communicator& world = session.world();
    const Log log(world.rank());
    Device device({.node_rank = session.node_rank(), .node_ranks = session.node_ranks()});
    const ConvertReport report = carry_out(arguments, {world, device.compute(), log});
    if (world.rank() == 0)
      print_report(report,
                   std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    return static_cast<int>(ExitCode::ok);
  });
}

}  // namespace trireme::app
