// Which interface NCCL's sockets take, and calls between hosts that do and do not answer.
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/comm/network.hpp"

namespace trireme::test {
namespace {

const std::vector<NetworkAddress> kHost = {
    {"lo", "127.0.0.1", false}, {"docker0", "172.17.0.1", false}, {"eth0", "10.0.0.1", false},
    {"eth0", "fd00::1", true},  {"eth10", "10.1.0.1", false},     {"ib0", "10.2.0.1", false}};

std::string chosen(const std::string& pattern, std::span<const NetworkAddress> all = kHost) {
  const auto address = socket_address(all, pattern);
  return address ? address->address : "";
}

TEST(Network, TheInterfaceIsNcclsChoice) {
  EXPECT_EQ(chosen(""), "10.2.0.1");
  EXPECT_EQ(chosen("", std::span(kHost).first(5)), "10.0.0.1");
  EXPECT_EQ(chosen("", std::span(kHost).first(2)), "172.17.0.1");
  EXPECT_EQ(chosen("", std::span(kHost).first(1)), "127.0.0.1");
  EXPECT_EQ(chosen("eth"), "10.0.0.1");
  EXPECT_EQ(chosen("eth1"), "10.1.0.1");
  EXPECT_EQ(chosen("=eth1"), "");
  EXPECT_EQ(chosen("=bond0,eth10"), "10.1.0.1");
  EXPECT_EQ(chosen("^docker,ib"), "127.0.0.1");  // obeyed exactly: the loop is not left out
  EXPECT_EQ(chosen("^lo,docker,ib"), "10.0.0.1");
  EXPECT_EQ(chosen("^=lo,docker0,ib0,eth0"), "10.1.0.1");
  EXPECT_EQ(chosen("wlan"), "");
}

TEST(Network, ThisHostHasALoopWithAnAddress) {
  const std::vector<NetworkAddress> all = network_addresses();
  EXPECT_TRUE(std::ranges::any_of(all, [](const NetworkAddress& a) {
    return a.interface == "lo" && a.address == "127.0.0.1";
  }));
  EXPECT_EQ(socket_address(all, "=lo")->address, "127.0.0.1");
}

TEST(Network, CallsAreAnsweredOrExplained) {
  const NetworkAddress loop{"lo", "127.0.0.1", false};
  const Listener first(loop, "host 0"), second(loop, "host 1");
  std::vector<Endpoint> peers(300, Endpoint::parse(first.endpoint().text()));
  peers.push_back(second.endpoint());
  for (const std::string& fault : call_all(peers, 5)) EXPECT_EQ(fault, "");

  Endpoint stranger = first.endpoint();
  stranger.answer = "host 1";
  Endpoint closed = first.endpoint();
  {
    const Listener gone(loop, "");
    closed.port = gone.endpoint().port;
  }
  // 192.0.2.0/24 is kept for examples: no host has it.
  Endpoint nowhere = first.endpoint();
  nowhere.address = "192.0.2.1";
  const auto faults = call_all(std::vector{stranger, second.endpoint(), closed, nowhere}, 0.3);
  EXPECT_EQ(faults[0], "another host answers at this address");
  EXPECT_EQ(faults[1], "");
  EXPECT_EQ(faults[2], "Connection refused");
  EXPECT_NE(faults[3], "");
}

TEST(Network, AnAddressOfAnotherHostCannotBeListenedOn) {
  try {
    const Listener listener({"eth9", "192.0.2.1", false}, "x");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::peer);
    EXPECT_NE(std::string(error.what()).find("192.0.2.1 (eth9): cannot listen there"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trireme::test
