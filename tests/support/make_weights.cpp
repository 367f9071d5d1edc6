// make_weights DECK OUTPUT.h5 [--section.key=value ...] [--all=TENSOR=VALUE]
// [--first=TENSOR=VALUE]: a weights-only checkpoint in which nothing is zero or one: biases and
// gains hide faults otherwise.
// --all and --first set all elements of a tensor, or its first one. With --step=N the state of a
// run is added, whose moments are zero, as if N steps of batch.global were done. One process.
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
                   std::span<const std::string> changes, int64_t step) {
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
  std::vector<GlobalSlice> slices = store.value_slices("weights/");
  Arena empty = Arena::real(dry.high_water_bytes());
  const ParameterStore zeros(table, DType::f32, empty);
  if (step >= 0) {
    header.step = header.updates = step;
    header.consumed_samples = header.update_samples = step * deck.settings.batch.global;
    header.consumed_tokens = header.consumed_samples * deck.settings.batch.sequence;
    for (size_t i = 0; i < table.entries().size(); ++i)
      std::ranges::fill(zeros.value(static_cast<int>(i)).host<float>(), 0.0f);
    for (const auto& [from, name] :
         {std::pair{&store, "master/"}, {&zeros, "adam_m/"}, {&zeros, "adam_v/"}})
      for (GlobalSlice& slice : from->value_slices(name)) slices.push_back(std::move(slice));
  }
  CheckpointSave save({world, device.compute(), log}, output, header, slices);
  save.commit(save.write(), "{}\n");
}

}  // namespace

// The number of --step=N; -1 without such a word.
static int64_t take_step(std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with("--step=")) continue;
    const int64_t step = std::strtoll(words[i].c_str() + 7, nullptr, 10);
    words.erase(words.begin() + static_cast<ptrdiff_t>(i));
    return step;
  }
  return -1;
}

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
    const int64_t step = test::take_step(overrides);
    const Deck deck = read_deck(words[0], overrides, 0);
    test::write_weights(session.world(), deck, words[1], changes, step);
    return 0;
  });
}
