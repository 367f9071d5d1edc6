// make_weights DECK OUTPUT.h5 [--section.key=value ...] [--all=TENSOR=VALUE]
// [--first=TENSOR=VALUE]: a weights-only checkpoint in which nothing is zero or one: biases and
// gains hide faults otherwise.
// --all and --first set all elements of a tensor, or its first one. One process.
#include <algorithm>
#include <cstdlib>

#include "support/model_harness.hpp"
#include "trireme/comm/mpi_session.hpp"
#include "trireme/config/deck.hpp"
#include "trireme/config/layout.hpp"
#include "trireme/io/checkpoint.hpp"

namespace trireme::test {
namespace {

// Carries out a word of the form --all=TENSOR=VALUE or --first=TENSOR=VALUE.
void change(const ParameterStore& store, const ParameterTable& table, const std::string& word) {
  const size_t name_at = word.find('=') + 1, value_at = word.rfind('=') + 1;
  const std::string name = word.substr(name_at, value_at - 1 - name_at);
  const float value = std::strtof(word.c_str() + value_at, nullptr);
  for (size_t i = 0; i < table.entries().size(); ++i) {
    if (table.entries()[i].spec.name != name) continue;
    const auto values = store.value(static_cast<int>(i)).host<float>();
    std::fill_n(values.begin(), word.starts_with("--all") ? values.size() : 1, value);
    return;
  }
  fail(ExitCode::usage, "{}: the model has no tensor {}", word, name);
}

void write_weights(const Communicator& world, const Deck& deck, const std::string& output,
                   std::span<const std::string> changes) {
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
  for (const std::string& word : changes) change(store, table, word);
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
    std::vector<std::string> overrides(words.begin() + 2, words.end()), changes;
    std::erase_if(overrides, [&](const std::string& word) {
      const bool is_change = word.starts_with("--all=") || word.starts_with("--first=");
      if (is_change) changes.push_back(word);
      return is_change;
    });
    const Deck deck = read_deck(words[0], overrides, 0);
    test::write_weights(session.world(), deck, words[1], changes);
    return 0;
  });
}
