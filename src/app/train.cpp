// trireme train DECK [--section.key=value ...]
#include <optional>

#include "app/commands.hpp"
#include "app/deck_arguments.hpp"
#include "app/links.hpp"
#include "app/start_up.hpp"
#include "trireme/comm/mpi_session.hpp"
#include "trireme/config/layout.hpp"
#include "trireme/train/stop_request.hpp"
#include "trireme/train/time_limit.hpp"
#include "trireme/train/trainer.hpp"
#include "trireme/train/version.hpp"

namespace trireme::app {

int train(int argc, char** argv) {
  const std::vector<std::string> words(argv + 2, argv + argc);
  const StopRequest stop;  // before MPI starts: no signal is lost
  const LauncherWorld launcher = read_launcher();
  MpiSession session(argc, argv);
  return run_guarded(session, [&] {
    const Communicator& world = session.world();
    require_same_program(session);
    const DeckArguments arguments =
        deck_arguments(words, "trireme train DECK [--section.key=value ...]");
    Deck deck = read_deck_together(arguments, world, [&](const Settings& settings) {
      require_expected_world(session, launcher, settings.grid);
    });
    const Log log(world.rank(), deck.settings.log.level);
    log.info("{}, {} ranks on {} host{}, {}", version_text(), world.size(), session.nodes(),
             session.nodes() == 1 ? "" : "s", session.library_version());
    require_same_deck(session, deck.settings);
    Device device(device_options(session, deck.settings));
    const GridShape shape = grid_shape(deck.settings, world.size());
    report_places(session, shape, deck.settings, log);
    check_network(session, deck.settings, log);
    const ProcessGrid grid(world, shape, deck.settings.model.kv_heads, device);
    if (deck.settings.fault.check_links) report_links(session, grid, device, log);
    Trainer trainer(std::move(deck), grid, device, log);
    trainer.obey(stop);
    std::optional<TimeLimit> limit;
    if (world.rank() == 0) limit = TimeLimit::of_this_job();
    if (limit) trainer.obey(*limit);
    return static_cast<int>(trainer.run());
  });
}

}  // namespace trireme::app
