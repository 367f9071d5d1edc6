// Small owners around the socket calls.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace trireme {

// A descriptor that is closed with its owner; -1: none.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  int get() const { return number_; }

 private:
  int number_;
};

// An address of either family in the form of the system's calls.
class SocketAddress {
 public:
  // `numeric`: "10.0.0.1", "fd00::1". family() is AF_UNSPEC where it is neither.
  SocketAddress(const std::string& numeric, int port);
  int family() const { return storage_.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const;
  int port() const;
  bool read_back(int descriptor);  // what the system has bound

 private:
  sockaddr_storage storage_{};
};

}  // namespace trireme
