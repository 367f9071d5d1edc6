// trireme bench WHAT: validated timings. Each figure stands beside an anchor measured in the same
// run.
#include "app/bench.hpp"

#include <array>
#include <string>
#include <vector>

#include "app/commands.hpp"
#include "app/start_up.hpp"

namespace trireme::app {
namespace {

struct Bench {
  const char* name;
  int (*run)(MpiSession&, std::vector<std::string>, const std::string&);
  const char* usage;
};
constexpr std::array<Bench, 4> kBenches = {
    {{"ops", bench_ops,
      "trireme bench ops [--dtype f32|bf16] [--shape gpt2|llama] [--tokens N] [--sequence N] "
      "[--only NAME]"},
     {"step", bench_step, "trireme bench step DECK [--steps N] [--section.key=value ...]"},
     {"comm", bench_comm,
      "trireme bench comm [DECK] [--grid.tp=N --grid.cp=N --grid.pp=N] [--dtype f32|bf16] "
      "[--most BYTES]"},
     {"save", bench_save, "trireme bench save DIRECTORY [--bytes N] [--turns N] [--buffered]"}}};

}  // namespace

int bench(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[2] : "";
  const std::vector<std::string> words(argv + std::min(argc, 3), argv + argc);
  const LauncherWorld launcher = read_launcher();
  MpiSession session(argc, argv);
  return run_guarded(session, [&] {
    require_same_program(session);
    require_one_job(session, launcher);
    std::string usages;
    for (const Bench& bench : kBenches) {
      if (what == bench.name) return bench.run(session, words, bench.usage);
      usages += fmt::format("\n  {}", bench.usage);
    }
    fail(ExitCode::usage, "{}\nusage:{}",
         what.empty() ? "the name of a bench is missing" : fmt::format("unknown bench '{}'", what),
         usages);
  });
}

}  // namespace trireme::app
