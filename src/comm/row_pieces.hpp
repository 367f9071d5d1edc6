// Rows of each peer as consecutive pieces of a view: what all_to_all sends and receives.
#pragma once

#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "comm/communicator_state.hpp"

namespace trireme::inline TRIREME_BACKEND {

struct RowPieces {
  TensorView view;
  std::vector<int64_t> first;  // size + 1 rows

  RowPieces(const Communicator::State& group, TensorView whole, std::span<const int64_t> rows,
            std::string_view what)
      : view(whole), first(rows.size() + 1, 0) {
    require(rows.size() == static_cast<size_t>(group.size), ExitCode::internal,
            "all_to_all on {}: {} {} counts for {} ranks", group.name, rows.size(), what,
            group.size);
    for (int64_t n : rows)
      require(n >= 0, ExitCode::internal, "all_to_all on {}: {} {} rows", group.name, what, n);
    std::inclusive_scan(rows.begin(), rows.end(), first.begin() + 1);
    require(first.back() <= view.shape[0], ExitCode::internal,
            "all_to_all on {}: {} rows to {} in a view of shape {}", group.name, first.back(), what,
            view.shape.text());
  }
  TensorView of(int peer) const {
    const auto p = static_cast<size_t>(peer);
    return view.rows(first[p], first[p + 1]);
  }
};

// Both sides of an all_to_all, checked against each other. `kept` goes to `place` on this rank
// itself.
struct AllToAllPieces {
  RowPieces out, in;
  TensorView kept, place;

  AllToAllPieces(const Communicator::State& group, TensorView send,
                 std::span<const int64_t> send_rows, TensorView receive,
                 std::span<const int64_t> receive_rows)
      : out(group, send, send_rows, "send"),
        in(group, receive, receive_rows, "receive"),
        kept(out.of(group.rank)),
        place(in.of(group.rank)) {
    require(
        send.dtype == receive.dtype && send.shape.row_elements() == receive.shape.row_elements(),
        ExitCode::internal, "all_to_all on {}: rows of {} {} and {} {} differ", group.name,
        send.shape.text(), name_of(send.dtype), receive.shape.text(), name_of(receive.dtype));
    require(kept.bytes() == place.bytes(), ExitCode::internal,
            "all_to_all on {}: rank {} keeps {} rows and awaits {} from itself", group.name,
            group.rank, kept.shape[0], place.shape[0]);
  }
};

}  // namespace trireme::inline TRIREME_BACKEND
