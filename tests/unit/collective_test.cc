// collective.h: what collectives and messages take, on one host and between hosts.
#include "memcalc/cost/collective.h"

#include <gtest/gtest.h>

#include "support/plain_rates.h"

namespace memcalc {
namespace {

using test::device;
using test::rates;

// 16 ranks, 8 a host with adapters of 10 GB/s: a ring for each adapter of the group's members in a host, 80 GB/s in
// all; of every second rank 40, of groups with one member a host 10.
TEST(Collectives, BetweenHostsByHand) {
  LinkRates link = rates().link;
  link.network_bytes_per_second = 10e9;
  work::Communication gather{.kind = Collective::kAllGather, .bytes = 1e9, .ranks = 16};
  EXPECT_NEAR(collective_seconds(gather, device(), link), 1e9 * 15 / 16 / 80e9, 1e-9);
  gather.distance = 2;  // every second rank: 4 of a host's 8
  EXPECT_NEAR(collective_seconds(gather, device(), link), 1e9 * 15 / 16 / 40e9, 1e-9);
  gather.distance = 8;
  EXPECT_NEAR(collective_seconds(gather, device(), link), 1e9 * 15 / 16 / 10e9, 1e-9);
  link.network_us = 5;  // 15 times it leaves a host
  EXPECT_NEAR(collective_seconds(gather, device(), link), 1e9 * 15 / 16 / 10e9 + 15 * 5e-6, 1e-9);
  work::Communication message = gather;
  message.kind = Collective::kSend;
  message.ranks = 2;
  EXPECT_NEAR(collective_seconds(message, device(), link), 1e9 / 10e9 + 5e-6, 1e-9);
  message.distance = 1;  // neighbours
  EXPECT_NEAR(collective_seconds(message, device(), link), 1e9 / 100e9, 1e-9);
}

// Half of what each of two hosts' sixteen members sends leaves the host, by its own adapter.
TEST(Collectives, AnAllToAllBetweenHostsHasAnAdapterForEachMember) {
  LinkRates link = rates().link;
  link.network_bytes_per_second = 10e9;
  work::Communication exchange{.kind = Collective::kAllToAll, .bytes = 1e9, .ranks = 16};
  EXPECT_NEAR(collective_seconds(exchange, device(), link), 1e9 * 8 / 16 / 10e9, 1e-9);
  exchange.distance = 8;  // a member in each host
  EXPECT_NEAR(collective_seconds(exchange, device(), link), 1e9 * 15 / 16 / 10e9, 1e-9);
  exchange = {.kind = Collective::kAllToAll, .bytes = 1e9, .ranks = 8};
  EXPECT_NEAR(collective_seconds(exchange, device(), link), 1e9 * 7 / 8 / 100e9, 1e-9) << "within a host";
}

TEST(Collectives, WhatGathersOrScattersHasARateOfItsOwn) {
  LinkRates link = rates().link;
  link.gather_bandwidth = 0.5;
  const auto seconds = [&](Collective kind) {
    return collective_seconds({.kind = kind, .bytes = 1e9, .ranks = 4}, device(), link);
  };
  EXPECT_NEAR(seconds(Collective::kAllReduce), 2 * 0.75e9 / 100e9, 1e-9);
  EXPECT_NEAR(seconds(Collective::kAllGather), 0.75e9 / 50e9, 1e-9);
  EXPECT_NEAR(seconds(Collective::kReduceScatter), 0.75e9 / 50e9, 1e-9);
}

// NCCL on a host of eight A100 PCIe (SimuMax's fits): of gathers two and four cards send 22.1 and 22.3 GB/s,
// eight 14.5; two that are four apart, four such groups at once, 4.3, and four that are two apart 8.2.
TEST(Collectives, OverPciExpressAHostsHalvesShareWhatIsBetweenThem) {
  DeviceSpec card = device();
  card.link_bytes_per_second = 0;
  card.pcie_bytes_per_second = 31.5e9;
  const auto rate = [&](std::int64_t ranks, std::int64_t distance) {
    const work::Communication gather{
        .kind = Collective::kAllGather, .bytes = 1e9, .ranks = ranks, .distance = distance};
    const double sent = 1e9 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    return sent / collective_seconds(gather, card, rates().link) * 1e-9;
  };
  EXPECT_NEAR(rate(2, 1), 22.1, 0.5);
  EXPECT_NEAR(rate(4, 1), 22.3, 0.5);
  EXPECT_NEAR(rate(8, 1), 14.5, 0.5);
  EXPECT_NEAR(rate(4, 2), 8.2, 1);
  EXPECT_NEAR(rate(2, 4), 4.3, 0.8);
}

// A bridge of NVLink joins two cards; a group of four, or of two that are not neighbours, goes over PCIe.
TEST(Collectives, ABridgeJoinsNeighboursAlone) {
  DeviceSpec bridged = device(), linked = device(), without = device();
  bridged.link_cards = 2;
  bridged.pcie_bytes_per_second = without.pcie_bytes_per_second = 31.5e9;
  without.link_bytes_per_second = 0;
  const auto seconds = [&](const DeviceSpec& card, std::int64_t ranks, std::int64_t distance) {
    return collective_seconds({.kind = Collective::kAllReduce, .bytes = 1e9, .ranks = ranks, .distance = distance},
                              card, rates().link);
  };
  EXPECT_DOUBLE_EQ(seconds(bridged, 2, 1), seconds(linked, 2, 1));
  EXPECT_DOUBLE_EQ(seconds(bridged, 4, 1), seconds(without, 4, 1));
  EXPECT_DOUBLE_EQ(seconds(bridged, 2, 4), seconds(without, 2, 4));
  EXPECT_GT(seconds(bridged, 4, 1), 3 * seconds(linked, 4, 1));
}

// What the rank has itself goes through its multiprocessors, too; small messages take the low-latency protocol.
TEST(Collectives, OwnPartsAndSmallMessages) {
  LinkRates link = rates().link;
  link.gather_own_bandwidth = 2;
  const auto gather = [&](double bytes) {
    return collective_seconds({.kind = Collective::kAllGather, .bytes = bytes, .ranks = 2}, device(), link);
  };
  EXPECT_NEAR(gather(4e8), 0.2e9 / 100e9 + 0.2e9 / 200e9, 1e-9);
  EXPECT_NEAR(gather(1e9), 0.5e9 / 100e9 + (0.2e9 + 0.56 * 0.3e9) / 200e9, 1e-9) << "of large ones a part is hidden";
  link.start_us = 20;
  link.quick_start_us = 5;
  link.quick_bandwidth = 0.25;
  EXPECT_NEAR(gather(1e6), 5e-6 + 0.5e6 / 25e9, 1e-12);
  EXPECT_NEAR(gather(4e8), 20e-6 + 0.2e9 / 100e9 + 0.2e9 / 200e9, 1e-12);
}

// Each of the ring's n - 1 steps, which an all-reduce goes round twice.
TEST(Collectives, StepsOfARingTakeTimeByKind) {
  LinkRates link = rates().link;
  link.hop_us = 5;
  link.gather_hop_us = 9;
  const auto steps = [&](Collective kind) {
    const work::Communication group{.kind = kind, .bytes = 1e6, .ranks = 8};
    return collective_seconds(group, device(), link) - collective_seconds(group, device(), rates().link);
  };
  EXPECT_NEAR(steps(Collective::kAllReduce), 14 * 5e-6, 1e-9);
  EXPECT_NEAR(steps(Collective::kAllGather), 7 * 9e-6, 1e-9);
  EXPECT_NEAR(steps(Collective::kReduceScatter), 7 * 9e-6, 1e-9);
  EXPECT_NEAR(steps(Collective::kAllToAll), 7 * 5e-6, 1e-9);
}

TEST(Collectives, RingsByHand) {
  work::Communication all_reduce{.kind = Collective::kAllReduce, .bytes = 1e9, .ranks = 4};
  // 2 (n - 1) / n of 1 GB over 100 GB/s: 15 ms.
  EXPECT_NEAR(collective_seconds(all_reduce, device(), rates().link), 15e-3, 1e-9);
  all_reduce.kind = Collective::kAllGather;
  EXPECT_NEAR(collective_seconds(all_reduce, device(), rates().link), 7.5e-3, 1e-9);
  all_reduce.ranks = 1;
  EXPECT_EQ(collective_seconds(all_reduce, device(), rates().link), 0);
}

}  // namespace
}  // namespace memcalc
