// The interface that sockets will use, and a listener on it: see the header.
#include "trireme/comm/network.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string_view>
#include <thread>

#include "comm/socket_address.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

std::vector<std::string_view> words_of(std::string_view list) {
  std::vector<std::string_view> words;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (end > 0) words.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return words;
}

bool matches(const std::string& interface, std::string_view pattern) {
  const bool others = pattern.starts_with('^');
  if (others) pattern.remove_prefix(1);
  const bool whole = pattern.starts_with('=');
  if (whole) pattern.remove_prefix(1);
  const bool named = std::ranges::any_of(words_of(pattern), [&](std::string_view word) {
    return whole ? interface == word : interface.starts_with(word);
  });
  return named != others;
}

}  // namespace

std::vector<NetworkAddress> network_addresses() {
  std::vector<NetworkAddress> all;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return all;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char text[NI_MAXHOST];
    const socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(entry->ifa_addr, bytes, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0)
      continue;
    const std::string address(text);
    if (address.find('%') != std::string::npos) continue;  // link-local
    all.push_back({entry->ifa_name, address, family == AF_INET6});
  }
  freeifaddrs(list);
  return all;
}

std::optional<NetworkAddress> socket_address(std::span<const NetworkAddress> all,
                                             const std::string& pattern) {
  const std::vector<std::string> wanted =
      pattern.empty() ? std::vector<std::string>{"ib", "^docker,lo", "docker", "lo"}
                      : std::vector<std::string>{pattern};
  for (const std::string& one : wanted)
    for (const NetworkAddress& address : all)
      if (matches(address.interface, one)) return address;
  return std::nullopt;
}

std::string Endpoint::text() const {
  return fmt::format("{}\n{}\n{}\n{}", interface, address, port, answer);
}

Endpoint Endpoint::parse(const std::string& text) {
  std::istringstream lines(text);
  Endpoint read;
  std::string port;
  std::getline(lines, read.interface);
  std::getline(lines, read.address);
  std::getline(lines, port);
  std::getline(lines, read.answer);
  read.port = std::stoi(port);
  return read;
}

struct Listener::State {
  Endpoint endpoint;
  Descriptor socket;
  std::thread thread;

  // Ends when the socket is shut down.
  void serve() const {
    while (true) {
      const Descriptor caller(accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (caller.get() >= 0) {
        // A caller that is gone already needs no answer.
        [[maybe_unused]] const ssize_t sent =
            send(caller.get(), endpoint.answer.data(), endpoint.answer.size(), MSG_NOSIGNAL);
      } else if (errno == EINVAL || errno == EBADF) {
        return;
      } else if (errno == EMFILE || errno == ENFILE) {
        usleep(1000);
      }
    }
  }
};

Listener::Listener(const NetworkAddress& address, const std::string& answer)
    : state_(std::make_unique<State>()) {
  state_->endpoint = {address.interface, address.address, 0, answer};
  SocketAddress place(address.address, 0);
  state_->socket = Descriptor(socket(place.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int descriptor = state_->socket.get();
  require(descriptor >= 0 && bind(descriptor, place.get(), place.size()) == 0 &&
              listen(descriptor, SOMAXCONN) == 0 && place.read_back(descriptor),
          ExitCode::peer, "{} ({}): cannot listen there: {}", address.address, address.interface,
          std::strerror(errno));
  state_->endpoint.port = place.port();
  state_->thread = std::thread([this] { state_->serve(); });
}

Listener::~Listener() {
  shutdown(state_->socket.get(), SHUT_RDWR);
  state_->thread.join();
}

const Endpoint& Listener::endpoint() const {
  return state_->endpoint;
}

}  // namespace trireme
