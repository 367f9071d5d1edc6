// The simulator: each stage runs its list until something that it waits for has not happened yet.
// Times follow from the data flow alone, so the order in which stages are looked at does not
// matter.
#include "parallel/schedule_simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

namespace trireme {
namespace {

constexpr int64_t kForwardTime = 1;
constexpr int64_t kBackwardTime = 2;
constexpr int64_t kUnknown = -1;

// One direction of one edge: the k-th send meets the k-th posted receive.
struct Channel {
  struct End {
    Action action;
    int64_t time = 0;
  };
  std::vector<End> sent, posted;
  // When message k was handed over: both ends had to be there. kUnknown before that.
  int64_t matched(size_t k) const {
    if (k >= sent.size() || k >= posted.size()) return kUnknown;
    return std::max(sent[k].time, posted[k].time);
  }
};

// Buffers are taken in the order in which they were given back.
class Pool {
 public:
  explicit Pool(int count) : free_(static_cast<size_t>(count)) {}
  // When the next buffer can be used; kUnknown where that is not known yet, or all are taken.
  int64_t ready() const {
    if (free_.empty()) return kUnknown;
    const Entry& oldest = free_.front();
    return oldest.channel == nullptr ? oldest.time : oldest.channel->matched(oldest.message);
  }
  void take() { free_.pop_front(); }
  void give_back_at(int64_t time) { free_.push_back({nullptr, 0, time}); }
  void give_back_after(const Channel& channel, size_t message) {
    free_.push_back({&channel, message, 0});
  }

 private:
  struct Entry {
    const Channel* channel = nullptr;
    size_t message = 0;
    int64_t time = 0;
  };
  std::deque<Entry> free_;
};

struct StageState {
  explicit StageState(const BufferCounts& counts)
      : in(counts.activations_in), out(counts.activations_out), gradients(counts.gradients) {}
  size_t next = 0;
  int64_t clock = 0;
  Pool in, out, gradients;
  std::map<std::pair<int, int>, size_t> activation_message, gradient_message;
};

class Simulator {
 public:
  Simulator(std::span<const ActionList> lists, const PipelineShape& shape)
      : lists_(lists), shape_(shape), activations_(lists.size()), gradients_(lists.size()) {
    for (size_t s = 0; s < lists.size(); ++s)
      states_.emplace_back(buffers_needed(lists[s], shape, static_cast<int>(s)));
    result_.stages.resize(lists.size());
  }

  Simulation run() {
    bool moved = true;
    while (moved && !result_.fault) {
      moved = false;
      for (size_t s = 0; s < lists_.size(); ++s)
        while (!result_.fault && advance(s)) moved = true;
    }
    if (!result_.fault) result_.fault = deadlock();
    return std::move(result_);
  }

 private:
  // Carries out the next action of a stage; false where it has to wait.
  bool advance(size_t s) {
    StageState& state = states_[s];
    if (state.next == lists_[s].size()) return false;
    const Action& action = lists_[s][state.next];
    int64_t start = state.clock, duration = 0;
    switch (action.verb) {
      case Verb::receive_activation:
        if (!post(s, action, state.in, activations_[before(s)], state.activation_message))
          return false;
        break;
      case Verb::receive_gradient:
        if (!post(s, action, state.gradients, gradients_[s], state.gradient_message)) return false;
        break;
      case Verb::send_activation:
        send(s, action, state.out, activations_[s]);
        break;
      case Verb::send_gradient:
        send(s, action, state.gradients, gradients_[before(s)]);
        break;
      case Verb::forward:
        start = forward_start(s, action);
        duration = kForwardTime;
        break;
      case Verb::backward:
        start = backward_start(s, action);
        duration = kBackwardTime;
        break;
      case Verb::sync_gradients:
        break;
    }
    if (start == kUnknown) return false;
    start = std::max(start, state.clock);
    state.clock = start + duration;
    if (action.verb == Verb::backward) finish_backward(s, action);
    result_.stages[s].push_back({action, start, state.clock});
    result_.length = std::max(result_.length, state.clock);
    ++state.next;
    return true;
  }

  size_t before(size_t s) const { return s == 0 ? lists_.size() - 1 : s - 1; }

  bool post(size_t s, const Action& action, Pool& pool, Channel& channel,
            std::map<std::pair<int, int>, size_t>& messages) {
    StageState& state = states_[s];
    const int64_t ready = pool.ready();
    if (ready == kUnknown) return false;
    pool.take();
    state.clock = std::max(state.clock, ready);
    messages[{action.chunk, action.micro_batch}] = channel.posted.size();
    channel.posted.push_back({action, state.clock});
    check_match(channel, channel.posted.size() - 1);
    return true;
  }

  void send(size_t s, const Action& action, Pool& pool, Channel& channel) {
    channel.sent.push_back({action, states_[s].clock});
    pool.give_back_after(channel, channel.sent.size() - 1);
    check_match(channel, channel.sent.size() - 1);
  }

  int64_t forward_start(size_t s, const Action& action) {
    StageState& state = states_[s];
    const int stage = static_cast<int>(s);
    const bool receives = !shape_.is_first(stage, action.chunk);
    const bool sends = !shape_.is_last(stage, action.chunk);
    int64_t start = state.clock;
    if (receives) {
      const size_t message = state.activation_message[{action.chunk, action.micro_batch}];
      const int64_t arrived = activations_[before(s)].matched(message);
      if (arrived == kUnknown) return kUnknown;
      start = std::max(start, arrived);
    }
    if (sends) {
      const int64_t ready = state.out.ready();
      if (ready == kUnknown) return kUnknown;
      start = std::max(start, ready);
      state.out.take();
    }
    if (receives) state.in.give_back_at(start);
    return start;
  }

  int64_t backward_start(size_t s, const Action& action) {
    StageState& state = states_[s];
    const int stage = static_cast<int>(s);
    const bool first = shape_.is_first(stage, action.chunk);
    if (!shape_.is_last(stage, action.chunk)) {
      const size_t message = state.gradient_message[{action.chunk, action.micro_batch}];
      return gradients_[s].matched(message);
    }
    if (first) return state.clock;
    const int64_t ready = state.gradients.ready();
    if (ready != kUnknown) state.gradients.take();
    return ready;
  }

  void finish_backward(size_t s, const Action& action) {
    const int stage = static_cast<int>(s);
    if (shape_.is_first(stage, action.chunk) && !shape_.is_last(stage, action.chunk))
      states_[s].gradients.give_back_at(states_[s].clock);
  }

  // Message k has both ends: they must be the same micro-batch of neighbouring virtual stages.
  void check_match(const Channel& channel, size_t k) {
    if (k >= channel.sent.size() || k >= channel.posted.size() || result_.fault) return;
    const Action& sent = channel.sent[k].action;
    const Action& posted = channel.posted[k].action;
    const bool wraps = sent.verb == Verb::send_activation ? &channel == &activations_.back()
                                                          : &channel == &gradients_.back();
    const int step = sent.verb == Verb::send_activation ? 1 : -1;
    const int expected = sent.chunk + (wraps ? step : 0);
    if (sent.micro_batch == posted.micro_batch && expected == posted.chunk) return;
    const auto& channels = sent.verb == Verb::send_activation ? activations_ : gradients_;
    result_.fault = fmt::format("message {} of edge {}: {} meets {}", k, &channel - channels.data(),
                                text_of(sent), text_of(posted));
  }

  std::optional<std::string> deadlock() const {
    std::string text;
    for (size_t s = 0; s < lists_.size(); ++s) {
      if (states_[s].next == lists_[s].size()) continue;
      text += fmt::format("{}stage {} waits at action {}, {}", text.empty() ? "deadlock: " : "; ",
                          s, states_[s].next, text_of(lists_[s][states_[s].next]));
    }
    if (text.empty()) return std::nullopt;
    return text;
  }

  std::span<const ActionList> lists_;
  PipelineShape shape_;
  std::vector<Channel> activations_;  // [s]: from stage s to the next, the last one to stage 0
  std::vector<Channel> gradients_;    // [s]: from the stage after s back to s
  std::vector<StageState> states_;
  Simulation result_;
};

}  // namespace

Simulation simulate(std::span<const ActionList> lists, const PipelineShape& shape) {
  return Simulator(lists, shape).run();
}

}  // namespace trireme
