// trireme COMMAND ...: finds the command and turns what it throws into a message and an exit code.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "app/commands.hpp"
#include "trireme/base/error.hpp"
#include "trireme/ops/startup.hpp"
#include "trireme/train/version.hpp"

namespace {

constexpr const char* kUsage =
    "usage: trireme COMMAND [arguments]\n"
    "  train DECK [--section.key=value ...]   train; goes on from the run directory's checkpoint\n"
    "  plan DECK --ranks N                    check a deck; memory, FLOPs, schedule; starts "
    "nothing\n"
    "  tokenize --input FILE... --tokenizer NAME_OR_PATH --output PREFIX   text or JSONL to "
    "tokens\n"
    "  tokenizer train --input FILE... --vocab N --output tokenizer.json   learn a tokenizer\n"
    "  eval CHECKPOINT [--dataset PREFIX]     loss of a checkpoint; --task hellaswag --file F.bin\n"
    "  generate CHECKPOINT --prompt TEXT      text from a checkpoint (also under a launcher)\n"
    "  convert --from-hf DIR --output RUN_DIR_OR_FILE | --to-hf DIR --checkpoint RUN_DIR_OR_FILE\n"
    "                                         Hugging Face (or llm.c) models to checkpoints and "
    "back\n"
    "  verify FILE                            check a checkpoint or a dataset, checksums included\n"
    "  show FILE                              what is in a checkpoint: step, deck, tensors, "
    "statistics\n"
    "  bench ops [--dtype T] [--shape gpt2|llama] [--tokens N] [--sequence N] [--only NAME]\n"
    "  bench step DECK [--steps N]            a whole training step\n"
    "  bench comm [DECK] [--grid.tp=N ...] [--dtype T] [--most BYTES]\n"
    "  bench save DIRECTORY [--bytes N]       saving and loading there\n"
    "                                         validated timings on this machine\n"
    "  help [SECTION[.KEY]]                   the keys of a deck; trireme --version\n"
    "Commands that train are started by a launcher: mpirun -n 4 trireme train inputs/tiny.ini\n";

int dispatch(int argc, char** argv) {
  using namespace trireme;
  const std::string command = argc > 1 ? argv[1] : "";
  const std::vector<std::string> arguments(argv + std::min(argc, 2), argv + argc);
  if (command == "train") return app::train(argc, argv);
  if (command == "bench") return app::bench(argc, argv);
  if (command == "eval") return app::eval(argc, argv);
  if (command == "generate") return app::generate(argc, argv);
  if (command == "convert") return app::convert(argc, argv);
  if (command == "plan") return app::plan(arguments);
  if (command == "tokenize") return app::tokenize(argc, argv);
  if (command == "tokenizer") return app::tokenizer(arguments);
  if (command == "verify") return app::verify(arguments);
  if (command == "show") return app::show(arguments);
  if (command == "help" || command == "--help" || command == "-h")
    return app::help(arguments, kUsage);
  if (command == "--version") {
    fmt::print("{}\n", version_text());
    return 0;
  }
  fail(ExitCode::usage, "{}\n{}",
       command.empty() ? "a command is missing" : "unknown command '" + command + "'", kUsage);
}

}  // namespace

int main(int argc, char** argv) {
  trireme::prepare_process(argc, argv);
  try {
    return dispatch(argc, argv);
  } catch (const trireme::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return static_cast<int>(e.code());
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return static_cast<int>(trireme::ExitCode::internal);
  }
}
