// Whether hosts reach each other by TCP on the interface that the data plane will choose. NCCL
// connects its ranks by sockets even where InfiniBand moves the data: an interface that leads
// nowhere (a container's bridge with the same address on every host, a firewall) shows as a hang
// there, and in words here.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme {

struct NetworkAddress {
  std::string interface;  // "eth0"
  std::string address;    // numeric, "10.0.0.1" or "fd00::1"
  bool ipv6 = false;
};

// Addresses of this host's interfaces that are up, in the system's order, without IPv6's link-local
// ones.
std::vector<NetworkAddress> network_addresses();

// The first address of the interface that NCCL takes for sockets. `pattern` is NCCL_SOCKET_IFNAME:
// prefixes with commas between them, "=" before it: whole names, "^": all others. Empty: InfiniBand
// ("ib") first, then all but docker's and the loop, then docker's, then the loop. Nothing where no
// interface matches.
std::optional<NetworkAddress> socket_address(std::span<const NetworkAddress> all,
                                             const std::string& pattern);

struct Endpoint {
  std::string interface, address;
  int port = 0;
  std::string answer;  // what a caller hears there, and nowhere else; one line

  std::string text() const;  // to send to other ranks
  static Endpoint parse(const std::string& text);
};

// Listens on a free port of an address from construction to destruction, in a thread of its own
// which tells every caller `answer` (of at most 64 bytes) and hangs up. Throws Error(peer) where
// the address cannot be listened on.
class Listener {
 public:
  Listener(const NetworkAddress& address, const std::string& answer);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  const Endpoint& endpoint() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Local. Calls all of `peers` at once, some at a time; for each one why it did not give its answer
// within `seconds` of being called, "" where it did: "no answer in 5 s", "Connection refused",
// "another host answers at this address".
std::vector<std::string> call_all(std::span<const Endpoint> peers, double seconds);

}  // namespace trireme
