// Calling many hosts at once: see network.hpp.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include "comm/socket_address.hpp"
#include "trireme/comm/network.hpp"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kCallsAtATime = 128;  // descriptors are few: often 1,024

// One call: connects, then reads until the peer hangs up.
class Call {
 public:
  explicit Call(const Endpoint& peer) : peer_(peer) {
    const SocketAddress place(peer.address, peer.port);
    socket_ = Descriptor(socket(place.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket_.get() < 0 ||
        (connect(socket_.get(), place.get(), place.size()) != 0 && errno != EINPROGRESS))
      end(std::strerror(errno));
  }
  bool done() const { return done_; }
  const std::string& fault() const { return fault_; }
  pollfd waits_for() const {
    return {socket_.get(), static_cast<short>(connected_ ? POLLIN : POLLOUT), 0};
  }
  // The socket is ready for what it waits for, or has failed.
  void go_on() {
    if (!connected_) {
      int error = 0;
      socklen_t bytes = sizeof(error);
      getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
      if (error != 0) return end(std::strerror(error));
      connected_ = true;
      return;
    }
    char text[128];
    const ssize_t count = recv(socket_.get(), text, sizeof(text), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count < 0) return end(std::strerror(errno));
    heard_.append(text, static_cast<size_t>(count));
    if (count == 0 || heard_.size() > peer_.answer.size())
      end(heard_ == peer_.answer ? "" : "another host answers at this address");
  }
  void give_up(double seconds) { end(fmt::format("no answer in {:g} s", seconds)); }

 private:
  void end(const std::string& fault) {
    fault_ = fault;
    done_ = true;
    socket_ = Descriptor();
  }

  const Endpoint& peer_;
  Descriptor socket_;
  bool connected_ = false, done_ = false;
  std::string heard_, fault_;
};

void finish(std::span<Call> calls, double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (true) {
    std::vector<pollfd> waiting;
    std::vector<Call*> callers;
    for (Call& call : calls) {
      if (call.done()) continue;
      waiting.push_back(call.waits_for());
      callers.push_back(&call);
    }
    const double left = std::chrono::duration<double>(end - Clock::now()).count();
    if (waiting.empty()) return;
    if (left <= 0) {
      for (Call* call : callers) call->give_up(seconds);
      return;
    }
    poll(waiting.data(), waiting.size(), static_cast<int>(std::ceil(left * 1000)));
    for (size_t i = 0; i < waiting.size(); ++i)
      if (waiting[i].revents != 0) callers[i]->go_on();
  }
}

}  // namespace

std::vector<std::string> call_all(std::span<const Endpoint> peers, double seconds) {
  std::vector<std::string> faults;
  for (size_t first = 0; first < peers.size(); first += kCallsAtATime) {
    std::vector<Call> calls;
    for (const Endpoint& peer : peers.subspan(first, std::min(kCallsAtATime, peers.size() - first)))
      calls.emplace_back(peer);
    finish(calls, seconds);
    for (const Call& call : calls) faults.push_back(call.fault());
  }
  return faults;
}

}  // namespace trireme
