// trireme bench step DECK: the rate of a whole training step beside that of a large matrix product,
// measured turn by turn in one run, so that a noisy machine slows both.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "app/bench.hpp"
#include "app/deck_arguments.hpp"
#include "app/start_up.hpp"
#include "trireme/base/random.hpp"
#include "trireme/config/layout.hpp"
#include "trireme/ops/startup.hpp"
#include "trireme/train/trainer.hpp"

namespace trireme::app {
namespace {

constexpr int64_t kWarmUp = 3, kExposedSteps = 3, kWaitingSteps = 3;

// Times products of two square matrices of random numbers.
class ProductAnchor {
 public:
  ProductAnchor(Device& device, DType type, int64_t size)
      : device_(device), size_(size), arena_(Arena::real(3 * bytes(type, size))) {
    std::vector<float> values(static_cast<size_t>(size * size));
    for (TensorView* view : {&a_, &b_, &c_}) *view = arena_.take({size, size}, type, "products");
    for (TensorView* view : {&a_, &b_}) {
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(mix64(i + size_t(view == &b_)) >> 40) * 0x1p-24f - 0.5f;
      fill(*view, values);
    }
  }
  // FLOP/s of the fastest of `count` products.
  double best(int count) {
    double fastest = 1e30;
    for (int i = 0; i < count; ++i) {
      const auto start = std::chrono::steady_clock::now();
      gemm(device_.compute(), {.a = a_, .b = b_, .c = c_, .transpose_b = true});
      device_.compute().synchronize();
      fastest = std::min(fastest, seconds_since(start));
    }
    const auto n = static_cast<double>(size_);
    return 2 * n * n * n / fastest;
  }

 private:
  static size_t bytes(DType type, int64_t size) {
    return static_cast<size_t>(size * size) * size_of(type) + Arena::kAlignment;
  }
  void fill(TensorView view, const std::vector<float>& values) {
    if (view.dtype == DType::f32) {
      copy_to_device(device_.compute(), std::as_bytes(std::span(values)), view);
      device_.compute().synchronize();
      return;
    }
    std::vector<uint16_t> halves(values.size());
    std::ranges::transform(values, halves.begin(), to_bf16);
    copy_to_device(device_.compute(), std::as_bytes(std::span(halves)), view);
    device_.compute().synchronize();
  }
  Device& device_;
  int64_t size_;
  Arena arena_;
  TensorView a_, b_, c_;
};

int64_t take_steps(std::vector<std::string>& words, const std::string& usage) {
  const auto found = std::ranges::find(words, "--steps");
  if (found == words.end()) return 10;
  require(found + 1 != words.end(), ExitCode::usage, "--steps needs a number\nusage: {}", usage);
  const int64_t steps = std::atoll((found + 1)->c_str());
  require(steps > 0, ExitCode::usage, "--steps {}: a number above 0 is needed\nusage: {}",
          *(found + 1), usage);
  words.erase(found, found + 2);
  return steps;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// A few more steps with the clocks of exposed communication.
void print_exposed(const Log& log, Trainer& trainer, const Communicator& world) {
  trainer.time_exposed(true);
  for (int64_t i = 0; i < kExposedSteps; ++i) trainer.advance();
  trainer.settle();
  const ExposedTimes times = trainer.exposed();
  trainer.time_exposed(false);
  const auto most = [&](double seconds) {
    return 1e3 * world.max(seconds) / static_cast<double>(kExposedSteps);
  };
  const double tp = most(times.tp), pp = most(times.pp);
  const double reduce = most(times.reduce), gather = most(times.gather);
  log.info("exposed     tp {:.2f} ms a step on the slowest rank, {} shards beside products", tp,
           times.tp_shards / kExposedSteps);
  log.info("            pp {:.2f} ms, with the idle time of the schedule", pp);
  log.info("            dp {:.2f} ms for gradients, {:.2f} ms for values", reduce, gather);
}

// Phases by the host's clock: on a GPU that is the time to launch them. Then a few more steps in
// which the host waits for the device at the end of each phase.
void print_phases(const Log& log, Trainer& trainer, Device& device,
                  const std::vector<Phases::Line>& free_running, int64_t steps) {
  trainer.phases().reset();
  trainer.phases().wait_at_ends([&] {
    device.compute().synchronize();
    device.communication().synchronize();
  });
  for (int64_t i = 0; i < kWaitingSteps; ++i) trainer.advance();
  trainer.phases().wait_at_ends({});
  trainer.settle();
  const std::vector<Phases::Line> waiting = trainer.phases().lines();
  log.info("  {:24} {:>12} {:>22}", "phase, ms a step", "host", "one after the other");
  for (size_t i = 0; i < waiting.size(); ++i)
    log.info(
        "  {:24} {:12.2f} {:22.2f}", waiting[i].name,
        1e3 * (i < free_running.size() ? free_running[i].seconds : 0) / static_cast<double>(steps),
        1e3 * waiting[i].seconds / static_cast<double>(kWaitingSteps));
}

}  // namespace

int bench_step(MpiSession& session, std::vector<std::string> words, const std::string& usage) {
  const Communicator& world = session.world();
  const int64_t steps = take_steps(words, usage);
  Deck deck = read_deck_together(deck_arguments(words, usage), world);
  Settings& settings = deck.settings;
  settings.data.kind = DataKind::mock;
  settings.run.steps = kWarmUp + steps + kExposedSteps + kWaitingSteps;
  settings.run.evaluate_every = 0;
  const Log log(world.rank());
  Device device(device_options(session, settings));
  const ProcessGrid grid(world, grid_shape(settings, world.size()), settings.model.kv_heads,
                         device);
  const DType type = model_shape(settings).compute;
  ProductAnchor anchor(device, type, device_memory_is_host() ? 2048 : 8192);
  Trainer trainer(std::move(deck), grid, device, log);
  trainer.start_fresh();
  for (int64_t i = 0; i < kWarmUp; ++i) trainer.advance();
  trainer.phases().reset();
  anchor.best(3);

  std::vector<double> seconds;
  double product = 0;
  StepReport last;
  for (int64_t i = 0; i < steps; ++i) {
    last = trainer.advance();
    seconds.push_back(last.step_seconds);
    product = std::max(product, anchor.best(2));
  }
  trainer.settle();
  const double typical = median(seconds);
  const double rate = last.tflops_per_rank * 1e12 * last.step_seconds / typical;
  log.info("{} on {}; {}", grid.shape().text(), device.description(), math_description());
  log.info("step        {:.2f} ms (median of {}, fastest {:.2f}), {:.0f} tokens/s, loss {:.4f}",
           1e3 * typical, steps, 1e3 * *std::ranges::min_element(seconds),
           last.tokens_per_second * last.step_seconds / typical, last.loss);
  log.info("            {:.4g} TFLOP/s a rank, model FLOPs with causal attention at half",
           rate * 1e-12);
  log.info("product     {:.4g} TFLOP/s, fastest warm {} product, turn by turn with the steps",
           product * 1e-12, name_of(type));
  log.info("share       {:.1f} % of the product's rate", 100 * rate / product);
  constexpr double kMiB = 1 << 20;
  log.info("memory      {:.1f} MiB planned and taken on rank 0; {:.1f} MiB of {:.1f} in use",
           static_cast<double>(trainer.arena().high_water_bytes()) / kMiB,
           static_cast<double>(device.total_bytes() - device.free_bytes()) / kMiB,
           static_cast<double>(device.total_bytes()) / kMiB);
  const std::vector<Phases::Line> free_running = trainer.phases().lines();
  print_exposed(log, trainer, world);
  print_phases(log, trainer, device, free_running, steps);
  return 0;
}

}  // namespace trireme::app
