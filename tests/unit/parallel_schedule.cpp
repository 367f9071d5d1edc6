// Schedules: every shape is sound, broken lists are caught, bubbles and buffers have their known
// sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "trireme/base/error.hpp"
#include "trireme/parallel/schedule.hpp"

namespace trireme {
namespace {

std::vector<PipelineShape> all_shapes() {
  std::vector<PipelineShape> shapes;
  for (int stages = 1; stages <= 8; ++stages)
    for (int chunks = 1; chunks <= (stages == 1 ? 1 : 4); ++chunks)
      for (int micro_batches = 1; micro_batches <= 32; ++micro_batches)
        shapes.push_back({stages, chunks, micro_batches});
  return shapes;
}

std::string text_of_shape(const PipelineShape& s) {
  return fmt::format("{} stages, {} chunks, {} micro-batches", s.stages, s.chunks, s.micro_batches);
}

TEST(Schedule, EveryShapeIsSound) {
  for (const PipelineShape& shape : all_shapes())
    for (const Pass pass : {Pass::train, Pass::evaluate}) {
      const auto fault = find_fault(schedules_for(shape, pass), shape);
      ASSERT_FALSE(fault) << text_of_shape(shape) << ": " << *fault;
    }
}

TEST(Schedule, InterleavedWithOneChunkIsSoundToo) {
  for (int stages = 2; stages <= 8; ++stages) {
    const PipelineShape shape{stages, 1, 2 * stages + 1};
    std::vector<ActionList> lists;
    for (int s = 0; s < stages; ++s) lists.push_back(interleaved(shape, s));
    const auto fault = find_fault(lists, shape);
    EXPECT_FALSE(fault) << *fault;
  }
}

TEST(Schedule, OrderOfTheFirstStageIsOneForwardOneBackward) {
  const ActionList right = {
      {Verb::forward, 0, 0},          {Verb::send_activation, 0, 0}, {Verb::receive_gradient, 0, 0},
      {Verb::forward, 0, 1},          {Verb::send_activation, 0, 1}, {Verb::backward, 0, 0},
      {Verb::receive_gradient, 0, 1}, {Verb::forward, 0, 2},         {Verb::send_activation, 0, 2},
      {Verb::receive_gradient, 0, 2}, {Verb::backward, 0, 1},        {Verb::backward, 0, 2},
      {Verb::sync_gradients, 0, 0}};
  EXPECT_EQ(one_forward_one_backward({2, 1, 3}, 0), right);
}

TEST(Schedule, ReceivesArePostedBeforeThePrecedingCompute) {
  for (const PipelineShape shape : {PipelineShape{4, 1, 7}, PipelineShape{3, 2, 5}})
    for (int stage = 0; stage < shape.stages; ++stage) {
      int computes_since = 0;
      ActionList posted;
      for (const Action& action : schedule_for(shape, stage, Pass::train)) {
        const bool receive =
            action.verb == Verb::receive_activation || action.verb == Verb::receive_gradient;
        if (receive) posted.push_back(action);
        if (action.verb != Verb::forward && action.verb != Verb::backward) continue;
        const Verb source =
            action.verb == Verb::forward ? Verb::receive_activation : Verb::receive_gradient;
        const Action wanted{source, action.chunk, action.micro_batch};
        // At this compute action at most one receive may be posted for a later one.
        std::erase(posted, wanted);
        EXPECT_LE(posted.size(), 1u);
        ++computes_since;
      }
      EXPECT_EQ(computes_since, 2 * shape.chunks * shape.micro_batches);
    }
}

TEST(Schedule, BubblesOfPublishedShapes) {
  const auto bubble_of = [](PipelineShape shape) {
    return bubble(schedules_for(shape, Pass::train), shape);
  };
  EXPECT_NEAR(bubble_of({4, 5, 64}), 0.0094, 0.00005);
  EXPECT_NEAR(bubble_of({8, 5, 64}), 0.022, 0.0005);
  EXPECT_NEAR(bubble_of({8, 8, 64}), 0.014, 0.0005);
  EXPECT_NEAR(bubble_of({4, 5, 8}), 0.075, 0.0005);
  EXPECT_NEAR(bubble_of({4, 5, 4}), 0.15, 0.0005);
  EXPECT_NEAR(bubble_of({8, 1, 64}), 0.109, 0.0005);
  EXPECT_NEAR(bubble_of({16, 1, 64}), 0.234, 0.0005);
}

TEST(Schedule, BubbleIsTheFormulaWhereverStagesDivide) {
  for (int stages = 1; stages <= 8; ++stages)
    for (int chunks = 1; chunks <= (stages == 1 ? 1 : 4); ++chunks)
      for (int groups = 1; groups <= 4; ++groups) {
        const PipelineShape shape{stages, chunks, stages * groups};
        const double right = static_cast<double>(stages - 1) / (chunks * shape.micro_batches);
        EXPECT_DOUBLE_EQ(bubble(schedules_for(shape, Pass::train), shape), right)
            << text_of_shape(shape);
      }
  // Plain 1F1B needs no multiple.
  for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
    const PipelineShape shape{4, 1, micro_batches};
    EXPECT_DOUBLE_EQ(bubble(schedules_for(shape, Pass::train), shape), 3.0 / micro_batches);
  }
}

// Micro-batches that stages do not divide cost no more time than the next multiple.
TEST(Schedule, UnevenCountsTakeNoLongerThanTheNextMultiple) {
  const auto time_of = [](PipelineShape shape) {
    const double ideal = 3.0 * shape.chunks * shape.micro_batches;
    return ideal * (1 + bubble(schedules_for(shape, Pass::train), shape));
  };
  for (int stages = 2; stages <= 6; ++stages)
    for (int chunks = 2; chunks <= 3; ++chunks)
      for (int m = 1; m <= 2 * stages; ++m) {
        const int next = (m + stages - 1) / stages * stages;
        EXPECT_LE(time_of({stages, chunks, m}), time_of({stages, chunks, next}) + 1e-9);
      }
}

TEST(Schedule, StashesAreThoseOfThePublishedSchedules) {
  for (int stages = 1; stages <= 8; ++stages)
    for (int stage = 0; stage < stages; ++stage)
      for (int m = 1; m <= 12; ++m)
        EXPECT_EQ(stashes_needed(one_forward_one_backward({stages, 1, m}, stage)),
                  std::min(stages - stage, m));
  // Interleaved, first stage: 1 + (p - 1) / (p v) times the p v of plain 1F1B (in chunks).
  for (int stages = 2; stages <= 8; ++stages)
    for (int chunks = 2; chunks <= 4; ++chunks)
      EXPECT_EQ(stashes_needed(interleaved({stages, chunks, 3 * stages}, 0)),
                stages * chunks + stages - 1);
  const PipelineShape shape{4, 2, 16};
  EXPECT_EQ(buffers_needed(forward_only(shape, 1), shape, 1).stashes, 1);
}

TEST(Schedule, BuffersDoNotShrinkWithMoreMicroBatches) {
  for (int stages = 1; stages <= 6; ++stages)
    for (int chunks = 1; chunks <= (stages == 1 ? 1 : 3); ++chunks)
      for (int stage = 0; stage < stages; ++stage)
        for (int m = 1; m < 20; ++m) {
          const PipelineShape less{stages, chunks, m}, more{stages, chunks, m + 1};
          const auto a = buffers_needed(schedule_for(less, stage, Pass::train), less, stage);
          const auto b = buffers_needed(schedule_for(more, stage, Pass::train), more, stage);
          EXPECT_EQ(larger(a, b), b) << text_of_shape(less) << ", stage " << stage;
        }
}

TEST(Schedule, OneStageNeedsNoMessageBuffers) {
  const PipelineShape shape{1, 1, 5};
  const BufferCounts counts = buffers_needed(schedule_for(shape, 0, Pass::train), shape, 0);
  EXPECT_EQ(counts, (BufferCounts{1, 0, 0, 0}));
}

// --- broken lists

std::vector<PipelineShape> some_shapes() {
  return {{1, 1, 1}, {1, 1, 3}, {2, 1, 1}, {2, 1, 4}, {3, 1, 5}, {4, 1, 2}, {2, 2, 3}, {3, 2, 6}};
}

TEST(ScheduleFaults, ADroppedActionIsFound) {
  for (const PipelineShape& shape : some_shapes())
    for (const Pass pass : {Pass::train, Pass::evaluate}) {
      const auto sound = schedules_for(shape, pass);
      for (size_t s = 0; s < sound.size(); ++s)
        for (size_t i = 0; i < sound[s].size(); ++i) {
          auto broken = sound;
          broken[s].erase(broken[s].begin() + static_cast<std::ptrdiff_t>(i));
          EXPECT_TRUE(find_fault(broken, shape))
              << text_of_shape(shape) << ", stage " << s << " without " << text_of(sound[s][i]);
        }
    }
}

TEST(ScheduleFaults, ARepeatedActionIsFound) {
  for (const PipelineShape& shape : some_shapes()) {
    const auto sound = schedules_for(shape, Pass::train);
    for (size_t s = 0; s < sound.size(); ++s)
      for (size_t i = 0; i < sound[s].size(); ++i)
        for (const size_t to : {size_t{0}, i, sound[s].size()}) {
          auto broken = sound;
          broken[s].insert(broken[s].begin() + static_cast<std::ptrdiff_t>(to), sound[s][i]);
          EXPECT_TRUE(find_fault(broken, shape)) << text_of(sound[s][i]);
        }
  }
}

TEST(ScheduleFaults, AStrangeActionIsFound) {
  for (const PipelineShape& shape : some_shapes()) {
    auto broken = schedules_for(shape, Pass::train);
    broken[0].insert(broken[0].begin(), {Verb::forward, 0, shape.micro_batches});
    EXPECT_TRUE(find_fault(broken, shape));
    broken = schedules_for(shape, Pass::train);
    broken[0].insert(broken[0].begin(), {Verb::receive_activation, 0, 0});
    EXPECT_TRUE(find_fault(broken, shape));
    broken = schedules_for(shape, Pass::train);
    broken.pop_back();
    EXPECT_TRUE(find_fault(broken, shape));
  }
}

// An independent judge of order: the lists, the messages and the micro-batches give a graph; a
// reordered set of lists can run (with enough buffers) exactly when the graph has no cycle and the
// messages of each edge are in one order.
class OrderGraph {
 public:
  OrderGraph(const std::vector<ActionList>& lists, const PipelineShape& shape) : shape_(shape) {
    for (size_t s = 0; s < lists.size(); ++s)
      for (const Action& action : lists[s]) nodes_.push_back({static_cast<int>(s), action});
    edges_.resize(nodes_.size());
    for (size_t a = 0; a < nodes_.size(); ++a) {
      if (a + 1 < nodes_.size() && nodes_[a + 1].first == nodes_[a].first) join(a, a + 1);
      for (size_t b = 0; b < nodes_.size(); ++b)
        if (sends_to(a, b)) receiver_of_.push_back({a, b}), join(a, first_user(b));
    }
  }

  bool can_run() const { return local_order_holds() && messages_in_order() && acyclic(); }

 private:
  using Node = std::pair<int, Action>;
  void join(size_t from, size_t to) { edges_[from].push_back(to); }
  bool sends_to(size_t a, size_t b) const {
    const auto& [from, x] = nodes_[a];
    const auto& [to, y] = nodes_[b];
    const int there = shape_.virtual_stage(to, y.chunk);
    const int here = shape_.virtual_stage(from, x.chunk);
    if (x.micro_batch != y.micro_batch) return false;
    if (x.verb == Verb::send_activation)
      return y.verb == Verb::receive_activation && there == here + 1;
    if (x.verb == Verb::send_gradient) return y.verb == Verb::receive_gradient && there == here - 1;
    return false;
  }
  size_t first_user(size_t receive) const {
    const auto& [stage, action] = nodes_[receive];
    const Verb user = action.verb == Verb::receive_activation ? Verb::forward : Verb::backward;
    return find({stage, {user, action.chunk, action.micro_batch}});
  }
  size_t find(const Node& node) const {
    return static_cast<size_t>(std::find(nodes_.begin(), nodes_.end(), node) - nodes_.begin());
  }
  bool local_order_holds() const {
    for (const auto& [stage, action] : nodes_) {
      const auto before = [&, s = stage, x = action](Verb a, Verb b) {
        const size_t i = find({s, {a, x.chunk, x.micro_batch}});
        const size_t j = find({s, {b, x.chunk, x.micro_batch}});
        return i == nodes_.size() || j == nodes_.size() || i < j;
      };
      if (!before(Verb::receive_activation, Verb::forward) ||
          !before(Verb::forward, Verb::send_activation) || !before(Verb::forward, Verb::backward) ||
          !before(Verb::receive_gradient, Verb::backward) ||
          !before(Verb::backward, Verb::send_gradient))
        return false;
    }
    for (size_t a = 0; a + 1 < nodes_.size(); ++a)
      if (nodes_[a].second.verb == Verb::sync_gradients && nodes_[a + 1].first == nodes_[a].first)
        return false;
    return true;
  }
  bool messages_in_order() const {
    for (const auto& [a, b] : receiver_of_)
      for (const auto& [c, d] : receiver_of_) {
        const bool same_channel =
            nodes_[a].first == nodes_[c].first && nodes_[a].second.verb == nodes_[c].second.verb;
        if (same_channel && (a < c) != (b < d)) return false;
      }
    return true;
  }
  bool acyclic() const {
    std::vector<int> incoming(nodes_.size(), 0);
    for (const auto& list : edges_)
      for (const size_t to : list) ++incoming[to];
    std::vector<size_t> open;
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (incoming[i] == 0) open.push_back(i);
    size_t done = 0;
    while (!open.empty()) {
      const size_t i = open.back();
      open.pop_back();
      ++done;
      for (const size_t to : edges_[i])
        if (--incoming[to] == 0) open.push_back(to);
    }
    return done == nodes_.size();
  }

  PipelineShape shape_;
  std::vector<Node> nodes_;
  std::vector<std::vector<size_t>> edges_;
  std::vector<std::pair<size_t, size_t>> receiver_of_;
};

TEST(ScheduleFaults, SwappedActionsAreFoundExactlyWhenTheyCannotRun) {
  std::mt19937 random(7);
  int faulty = 0, harmless = 0;
  for (const PipelineShape& shape : some_shapes()) {
    const auto sound = schedules_for(shape, Pass::train);
    ASSERT_TRUE(OrderGraph(sound, shape).can_run());
    for (int trial = 0; trial < 60; ++trial) {
      auto swapped = sound;
      ActionList& list = swapped[random() % swapped.size()];
      const size_t i = random() % list.size();
      const size_t j = trial % 2 == 0 ? std::min(i + 1, list.size() - 1) : random() % list.size();
      std::swap(list[i], list[j]);
      const bool runs = OrderGraph(swapped, shape).can_run();
      const auto fault = find_fault(swapped, shape);
      // With buffers that are just enough a list may stop that could run with more: never the
      // reverse.
      if (!runs) {
        EXPECT_TRUE(fault) << text_of_shape(shape) << " actions " << i << ", " << j;
      }
      if (i == j) {
        EXPECT_FALSE(fault);
      }
      (fault ? faulty : harmless)++;
    }
  }
  EXPECT_GT(faulty, 100);
  EXPECT_GT(harmless, 50);
}

TEST(ScheduleFaults, NeighboursThatWaitForEachOtherAreADeadlock) {
  // Stage 0 wants the gradient of micro-batch 0 before it sends micro-batch 1; stage 1 wants both
  // activations before its first backward.
  const PipelineShape shape{2, 1, 2};
  std::vector<ActionList> lists = {{{Verb::forward, 0, 0},
                                    {Verb::send_activation, 0, 0},
                                    {Verb::receive_gradient, 0, 0},
                                    {Verb::backward, 0, 0},
                                    {Verb::forward, 0, 1},
                                    {Verb::send_activation, 0, 1},
                                    {Verb::receive_gradient, 0, 1},
                                    {Verb::backward, 0, 1},
                                    {Verb::sync_gradients, 0, 0}},
                                   {{Verb::receive_activation, 0, 0},
                                    {Verb::forward, 0, 0},
                                    {Verb::receive_activation, 0, 1},
                                    {Verb::forward, 0, 1},
                                    {Verb::backward, 0, 0},
                                    {Verb::send_gradient, 0, 0},
                                    {Verb::backward, 0, 1},
                                    {Verb::send_gradient, 0, 1},
                                    {Verb::sync_gradients, 0, 0}}};
  const auto fault = find_fault(lists, shape);
  ASSERT_TRUE(fault);
  EXPECT_NE(fault->find("deadlock"), std::string::npos) << *fault;
  EXPECT_NE(fault->find("stage 0 waits at action 3, backward of chunk 0, micro-batch 0"),
            std::string::npos)
      << *fault;
}

TEST(ScheduleFaults, MessagesOutOfOrderNameTheEdge) {
  const PipelineShape shape{2, 1, 2};
  auto lists = schedules_for(shape, Pass::evaluate);
  // Stage 1 posts its two receives the wrong way round.
  const auto first =
      std::find(lists[1].begin(), lists[1].end(), Action{Verb::receive_activation, 0, 0});
  const auto second =
      std::find(lists[1].begin(), lists[1].end(), Action{Verb::receive_activation, 0, 1});
  std::swap(*first, *second);
  const auto fault = find_fault(lists, shape);
  ASSERT_TRUE(fault);
  EXPECT_NE(fault->find("edge 0"), std::string::npos) << *fault;
}

TEST(Schedule, SizesBelowOneAndChunksOnOneStageAreRefused) {
  EXPECT_THROW(schedule_for({0, 1, 1}, 0, Pass::train), Error);
  EXPECT_THROW(schedule_for({2, 1, 0}, 0, Pass::train), Error);
  EXPECT_THROW(schedule_for({1, 2, 4}, 0, Pass::train), Error);
  EXPECT_THROW(schedule_for({2, 1, 4}, 2, Pass::train), Error);
}

TEST(Schedule, Drawing) {
  const PipelineShape shape{2, 1, 2};
  const std::string right =
      "stage  0 | 0 1....[0 ]..[1 ]|\n"
      "stage  1 |.. 0[0 ] 1[1 ]....|\n"
      "time to the right: forward 1 unit, [backward] 2 units, dots idle; bubble 50.00 % of ideal "
      "compute time, 33.33 % of the step\n";
  EXPECT_EQ(draw(schedules_for(shape, Pass::train), shape), right);
  const PipelineShape wide{4, 2, 32};
  const std::string cut = draw(schedules_for(wide, Pass::train), wide, 80);
  EXPECT_EQ(cut.find('\n'), 80u);
  EXPECT_EQ(cut[79], '>');
}

}  // namespace
}  // namespace trireme
