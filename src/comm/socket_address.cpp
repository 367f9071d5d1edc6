#include "comm/socket_address.hpp"

#include <arpa/inet.h>

namespace trireme {
namespace {

const sockaddr_in& four(const sockaddr_storage& any) {
  return reinterpret_cast<const sockaddr_in&>(any);
}
const sockaddr_in6& six(const sockaddr_storage& any) {
  return reinterpret_cast<const sockaddr_in6&>(any);
}

}  // namespace

SocketAddress::SocketAddress(const std::string& numeric, int port) {
  auto& v4 = reinterpret_cast<sockaddr_in&>(storage_);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(storage_);
  if (inet_pton(AF_INET, numeric.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<uint16_t>(port));
  } else if (inet_pton(AF_INET6, numeric.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<uint16_t>(port));
  }
}

socklen_t SocketAddress::size() const {
  return family() == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

int SocketAddress::port() const {
  return ntohs(family() == AF_INET6 ? six(storage_).sin6_port : four(storage_).sin_port);
}

bool SocketAddress::read_back(int descriptor) {
  socklen_t bytes = sizeof(storage_);
  return getsockname(descriptor, reinterpret_cast<sockaddr*>(&storage_), &bytes) == 0;
}

}  // namespace trireme
