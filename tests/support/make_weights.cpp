// make_weights DECK OUTPUT.h5 [--section.key=value ...]: a weights-only checkpoint in which nothing
// is zero or one: biases and gains hide faults otherwise. One process.
#include <cstdio>

#include "support/model_harness.hpp"
#include "trireme/comm/mpi_session.hpp"
#include "trireme/config/deck.hpp"
#include "trireme/config/layout.hpp"
#include "trireme/io/checkpoint.hpp"

namespace trireme::test {
namespace {

void write_weights(const Communicator& world, const Deck& deck, const std::string& output) {
  const ModelShape model = model_shape(deck.settings);
  const ParameterTable table(model, {});
  Arena dry = Arena::dry();
  { const ParameterStore count(table, DType::f32, dry); }
  Arena arena = Arena::real(dry.high_water_bytes());
  const ParameterStore store(table, DType::f32, arena);
  for (size_t i = 0; i < table.entries().size(); ++i) {
    const auto values = store.value(static_cast<int>(i)).host<float>();
    for (size_t k = 0; k < values.size(); ++k)
      values[k] = test_weight(table.entries()[i].spec, static_cast<int64_t>(k));
  }
  Device device({});
  const Log log(0);
  CheckpointHeader header;
  header.model_section = section_text(deck.settings, "model");
  header.optimizer_section = section_text(deck.settings, "optimizer");
  header.data_section = section_text(deck.settings, "data");
  CheckpointSave save({world, device.compute(), log}, output, header,
                      store.value_slices("weights/"));
  save.commit(save.write(), "{}\n");
}

}  // namespace
}  // namespace trireme::test

int main(int argc, char** argv) {
  using namespace trireme;
  const std::vector<std::string> words(argv + 1, argv + argc);
  MpiSession session(argc, argv);
  return run_guarded(session, [&] {
    require(words.size() >= 2, ExitCode::usage, "usage: make_weights DECK OUTPUT [overrides]");
    const Deck deck = read_deck(words[0], std::span(words).subspan(2), 0);
    test::write_weights(session.world(), deck, words[1]);
    return 0;
  });
}
