// A small job that fails in the way its argument says; exit_codes.cpp starts it with mpirun.
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "trireme/comm/mpi_session.hpp"

namespace trireme {

namespace {

void pause_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

TensorView view_of(std::vector<float>& values) {
  return {reinterpret_cast<std::byte*>(values.data()),
          {static_cast<int64_t>(values.size())},
          DType::f32};
}

// Reductions that the ranks in `started` begin and never complete, on memory that is gone
// afterwards.
void drop_pending(const Communicator& world, bool started) {
  Device device({.node_ranks = world.size()});
  Communicator group = world.split(0, world.rank(), "group");
  group.connect(device);
  std::vector<float> values(1 << 22, 1.0f);
  if (started) group.all_reduce(device.communication(), view_of(values));
  if (world.rank() == world.size() - 1 || !started)
    fail(ExitCode::bad_data, "token 70000 in data.bin");
  device.communication().synchronize();
}

void all_drop_pending(const Communicator& world) {
  Device device({.node_ranks = world.size()});
  Communicator group = world.split(0, world.rank(), "group");
  group.connect(device);
  std::vector<float> values(1 << 22, 1.0f);
  group.all_reduce(device.communication(), view_of(values));
  fail(ExitCode::internal, "the loss is not finite");
}

void return_with_pending(const Communicator& world) {
  Device device({.node_ranks = world.size()});
  Communicator group = world.split(0, world.rank(), "group");
  group.connect(device);
  std::vector<float> values(1 << 22, 1.0f);
  group.all_reduce(device.communication(), view_of(values));
}

// Rank 0 sends more than rank 1 awaits: MPI itself reports it.
void truncate(const Communicator& world) {
  Device device({.node_ranks = world.size()});
  Communicator group = world.split(0, world.rank(), "group");
  group.connect(device);
  std::vector<float> values(group.rank() == 0 ? 100 : 50);
  const auto direction =
      group.rank() == 0 ? Transfer::Direction::send : Transfer::Direction::receive;
  const std::vector<Transfer> one{{direction, 1 - group.rank(), view_of(values)}};
  if (group.rank() < 2) group.exchange(device.compute(), one);
  group.barrier();
}

void part_agrees(const Communicator& world) {
  const Communicator pair = world.split(world.rank() < 2 ? 0 : -1, world.rank(), "pair");
  if (world.rank() < 2) pair.require_all(world.rank() == 0, ExitCode::io, "no room in /run");
  world.barrier();
}

const std::map<std::string, std::function<int(const Communicator&)>>& cases() {
  static const std::map<std::string, std::function<int(const Communicator&)>> all{
      {"success", [](const Communicator& w) { return w.all(true) ? 0 : 1; }},
      {"stopped", [](const Communicator&) { return static_cast<int>(ExitCode::stopped); }},
      {"bad_deck_everywhere",
       [](const Communicator&) -> int {
         fail(ExitCode::bad_config, "tp 3 does not divide 4 heads");
       }},
      {"bad_deck_late",
       [](const Communicator& w) -> int {
         pause_ms(120 * w.rank());
         fail(ExitCode::bad_config, "tp 3 does not divide 4 heads");
       }},
      {"lone_while_others_wait",
       [](const Communicator& w) {
         require(w.rank() != w.size() - 1, ExitCode::bad_data, "token 70000 in data.bin");
         w.barrier();
         return 0;
       }},
      {"lone_while_others_compute",
       [](const Communicator& w) {
         require(w.rank() != 1, ExitCode::no_input, "no file data.bin");
         pause_ms(60000);
         return 0;
       }},
      {"lone_after_others_left",
       [](const Communicator& w) {
         if (w.rank() == 1) pause_ms(200);
         require(w.rank() != 1, ExitCode::io, "no room in /run");
         return 0;
       }},
      {"some",
       [](const Communicator& w) {
         require(w.rank() == 0, ExitCode::bad_data, "token 70000 in data.bin");
         w.barrier();
         return 0;
       }},
      {"cause_and_victim",
       [](const Communicator& w) -> int {
         require(w.rank() != 0, ExitCode::peer, "a peer is gone");
         fail(ExitCode::bad_data, "token 70000 in data.bin");
       }},
      {"different_everywhere",
       [](const Communicator& w) -> int { fail(ExitCode::no_input, "no file data.{}", w.rank()); }},
      {"agreed",
       [](const Communicator& w) {
         w.require_all(w.rank() != 1, ExitCode::io, "no room in /run");
         return 0;
       }},
      {"agreed_in_part", [](const Communicator& w) { return part_agrees(w), 0; }},
      {"own_check",
       [](const Communicator&) -> int { fail(ExitCode::internal, "replicas differ"); }},
      {"no_memory",
       [](const Communicator& w) {
         if (w.rank() == 0) throw std::bad_alloc();
         w.barrier();
         return 0;
       }},
      {"foreign_exception", [](const Communicator&) -> int { throw std::out_of_range("map::at"); }},
      {"unknown_exception", [](const Communicator&) -> int { throw 5; }},
      {"pending_dropped", [](const Communicator& w) { return drop_pending(w, true), 0; }},
      {"pending_of_others",
       [](const Communicator& w) { return drop_pending(w, w.rank() != w.size() - 1), 0; }},
      {"pending_dropped_everywhere", [](const Communicator& w) { return all_drop_pending(w), 0; }},
      {"returns_with_pending", [](const Communicator& w) { return return_with_pending(w), 0; }},
      {"mpi_reports", [](const Communicator& w) { return truncate(w), 0; }},
  };
  return all;
}

}  // namespace

}  // namespace trireme

int main(int argc, char** argv) {
  trireme::MpiSession session(argc, argv);
  return trireme::run_guarded(session,
                              [&] { return trireme::cases().at(argv[1])(session.world()); });
}
