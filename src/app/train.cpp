// trireme train DECK [--section.key=value ...]
#include "app/commands.hpp"
#include "app/deck_arguments.hpp"
#include "trireme/comm/mpi_session.hpp"
#include "trireme/config/layout.hpp"
#include "trireme/train/stop_request.hpp"
#include "trireme/train/trainer.hpp"
#include "trireme/train/version.hpp"

namespace trireme::app {

int train(int argc, char** argv) {
  const std::vector<std::string> words(argv + 2, argv + argc);
  const StopRequest stop;  // before MPI starts: no signal is lost
  MpiSession session(argc, argv);
  return run_guarded(session, [&] {
    const Communicator& world = session.world();
    const DeckArguments arguments =
        deck_arguments(words, "trireme train DECK [--section.key=value ...]");
    Deck deck = read_deck_together(arguments, world);
    const Log log(world.rank(), deck.settings.log.level);
    log.info("{}, {} ranks on {} host{}, {}", version_text(), world.size(), session.nodes(),
             session.nodes() == 1 ? "" : "s", session.library_version());
    Device device({session.node_rank(), session.node_ranks(), 0,
                   deck.settings.precision.compute == PrecisionSettings::Compute::tf32});
    const GridShape shape = grid_shape(deck.settings, world.size());
    const ProcessGrid grid(world, shape, deck.settings.model.kv_heads, device);
    Trainer trainer(std::move(deck), grid, device, log);
    trainer.obey(stop);
    return static_cast<int>(trainer.run());
  });
}

}  // namespace trireme::app
