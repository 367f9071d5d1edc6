#include "app/bench_messages.hpp"

#include <algorithm>

#include "trireme/base/checked.hpp"
#include "trireme/base/random.hpp"

namespace trireme::app {
namespace {

// Element of the message of a rank of the world: 0 or 1.
float element_of(int rank, int64_t index) {
  const uint64_t place = static_cast<uint64_t>(index) * 0x9E3779B97F4A7C15ull;
  return static_cast<float>(mix64(place + static_cast<uint64_t>(rank) + 1) >> 63);
}

void fill_sent(Stream& stream, TensorView view, int rank) {
  constexpr int64_t kPiece = int64_t{1} << 22;
  for (int64_t first = 0; first < view.elements(); first += kPiece) {
    const int64_t last = std::min(first + kPiece, view.elements());
    std::vector<float> values(static_cast<size_t>(last - first));
    std::vector<uint16_t> halves(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = element_of(rank, first + static_cast<int64_t>(i));
      halves[i] = to_bf16(values[i]);
    }
    const bool whole = view.dtype == DType::f32;
    copy_to_device(stream,
                   whole ? std::as_bytes(std::span(values)) : std::as_bytes(std::span(halves)),
                   view.range(first, last));
    stream.synchronize();
  }
}

}  // namespace

const char* name_of(Exchange what) {
  constexpr std::array<const char*, 4> kNames = {"all_reduce", "reduce_scatter", "all_gather",
                                                 "exchange"};
  return kNames[static_cast<size_t>(what)];
}

double bus_factor(Exchange what, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (what == Exchange::exchange) return 1;
  return what == Exchange::all_reduce ? 2 * others : others;
}

std::vector<MessageKind> message_kinds(const ProcessGrid& grid) {
  std::vector<MessageKind> kinds;
  const auto add = [&](const char* axis, int ranks) {
    if (ranks == 1) return;
    for (const Exchange what :
         {Exchange::all_reduce, Exchange::reduce_scatter, Exchange::all_gather})
      kinds.push_back({axis, what, ranks});
  };
  add("tp", grid.tp().size());
  add(grid.shape().cp > 1 ? "dp x cp" : "dp", grid.dp().size());
  add("pp", grid.pp().size());
  if (grid.shape().pp > 1) kinds.push_back({"pp", Exchange::exchange, grid.pp().size()});
  return kinds;
}

Messages::Messages(const ProcessGrid& grid, Device& device, DType type, int64_t most_bytes)
    : grid_(grid), stream_(device.communication()) {
  // One element more for each rank: messages are rounded up to a multiple of the ranks.
  const int64_t count =
      ceil_div(std::max<int64_t>(most_bytes, 8), static_cast<int64_t>(size_of(type))) +
      grid.shape().ranks();
  size_t i = 0;
  for (TensorView* view : {&sent_, &received_, &other_}) {
    memory_[i] = Buffer(static_cast<size_t>(count) * size_of(type), Memory::device);
    *view = {memory_[i++].data(), {count}, type};
  }
  fill_sent(stream_, sent_, grid.world().rank());
}

const Communicator& Messages::group(const MessageKind& kind) const {
  if (kind.axis == "tp") return grid_.tp();
  return kind.axis == "pp" ? grid_.pp() : grid_.dp();
}

int64_t Messages::elements(const MessageKind& kind, int64_t bytes) const {
  return round_up(ceil_div(bytes, static_cast<int64_t>(size_of(type()))), kind.ranks);
}

void Messages::call(const MessageKind& kind, int64_t n) {
  const Communicator& axis = group(kind);
  const int64_t piece = n / kind.ranks;
  if (kind.what == Exchange::all_reduce) axis.all_reduce(stream_, received_.range(0, n));
  if (kind.what == Exchange::reduce_scatter)
    axis.reduce_scatter(stream_, sent_.range(0, n), received_.range(0, piece));
  if (kind.what == Exchange::all_gather)
    axis.all_gather(stream_, sent_.range(0, piece), received_.range(0, n));
  if (kind.what != Exchange::exchange) return;
  using enum Transfer::Direction;
  if (has_next()) {
    const std::array<Transfer, 2> both{
        {{send, 1, sent_.range(0, n)}, {receive, 1, received_.range(0, n)}}};
    grid_.to_next().activations.exchange(*grid_.to_next().activation_stream, both);
  }
  if (has_previous()) {
    const std::array<Transfer, 2> both{
        {{send, 0, sent_.range(0, n)}, {receive, 0, other_.range(0, n)}}};
    grid_.to_previous().activations.exchange(*grid_.to_previous().activation_stream, both);
  }
}

void Messages::reset(int64_t n) {
  copy(stream_, sent_.range(0, n), received_.range(0, n));
  stream_.synchronize();
}

void Messages::synchronize() {
  stream_.synchronize();
  if (has_next()) grid_.to_next().activation_stream->synchronize();
  if (has_previous()) grid_.to_previous().activation_stream->synchronize();
}

// Looks at every element of small messages; of large ones at every so manieth and at the last.
std::string Messages::fault_of(const MessageKind& kind, TensorView found,
                               const std::function<float(int64_t)>& expected) {
  const std::vector<float> values = read(stream_, found);
  const int64_t count = found.elements(), step = std::max<int64_t>(1, count / 100'000) | 1;
  // A sum of more than 256 ones is rounded in bf16.
  const float allowed = type() == DType::bf16 && kind.ranks > 256 ? 0x1p-7f : 0.0f;
  for (int64_t at = 0; at < count + step - 1; at += step) {
    const int64_t i = std::min(at, count - 1);
    const float value = values[static_cast<size_t>(i)], right = expected(i);
    if (std::abs(value - right) <= allowed * right) continue;
    return fmt::format(
        "{} over {} of {} elements of {} is wrong on rank {}: element {} is {} instead of {}",
        name_of(kind.what), kind.axis, count, trireme::name_of(type()), grid_.world().rank(), i,
        value, right);
  }
  return "";
}

std::string Messages::exchange_fault(const MessageKind& kind, int64_t n) {
  std::string text;
  const std::vector<int>& ranks = grid_.pp().world_ranks();
  const auto stage = static_cast<size_t>(grid_.here().pp);
  if (has_next())
    text = fault_of(kind, received_.range(0, n),
                    [&](int64_t i) { return element_of(ranks[stage + 1], i); });
  if (has_previous() && text.empty())
    text = fault_of(kind, other_.range(0, n),
                    [&](int64_t i) { return element_of(ranks[stage - 1], i); });
  return text;
}

std::string Messages::fault(const MessageKind& kind, int64_t n) {
  for (const TensorView& view : {received_, other_}) fill_poison(stream_, view.range(0, n));
  if (kind.what == Exchange::all_reduce) reset(n);
  call(kind, n);
  synchronize();
  const Communicator& axis = group(kind);
  const int64_t piece = n / kind.ranks;
  const auto sum = [&](int64_t i) {
    float total = 0;
    for (const int rank : axis.world_ranks()) total += element_of(rank, i);
    return total;
  };
  if (kind.what == Exchange::all_reduce) return fault_of(kind, received_.range(0, n), sum);
  if (kind.what == Exchange::reduce_scatter)
    return fault_of(kind, received_.range(0, piece),
                    [&](int64_t i) { return sum(axis.rank() * piece + i); });
  if (kind.what == Exchange::all_gather)
    return fault_of(kind, received_.range(0, n), [&](int64_t i) {
      return element_of(axis.world_ranks()[static_cast<size_t>(i / piece)], i % piece);
    });
  return exchange_fault(kind, n);
}

}  // namespace trireme::app
