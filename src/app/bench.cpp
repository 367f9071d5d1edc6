// trireme bench WHAT: validated timings. Each figure stands beside an anchor measured in the same
// run.
#include <string>
#include <vector>

#include "app/bench.hpp"
#include "app/commands.hpp"
#include "trireme/comm/mpi_session.hpp"

namespace trireme::app {

int bench(int argc, char** argv) {
  const std::string usage = "trireme bench step DECK [--steps N] [--section.key=value ...]";
  const std::string what = argc > 2 ? argv[2] : "";
  const std::vector<std::string> words(argv + std::min(argc, 3), argv + argc);
  MpiSession session(argc, argv);
  return run_guarded(session, [&] {
    if (what == "step") return bench_step(session, words, usage);
    fail(ExitCode::usage, "unknown bench '{}'\nusage: {}", what, usage);
  });
}

}  // namespace trireme::app
