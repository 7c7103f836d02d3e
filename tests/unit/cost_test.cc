// cost/cost.h: the host's queue, synchronisation and repeated micro-batches on kernels whose times are plain numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "memcalc/cost/cost.h"
#include "memcalc/cost/host_time.h"
#include "memcalc/cost/timeline.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/compiled_code.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/within_call.h"
#include "support/plain_rates.h"

namespace memcalc {
namespace {

using test::device;
using test::kernel;
using test::kOp;
using test::rates;

// An operator in forward takes this share of what a loop of it takes, one in backward this (cost/host_time.cc).
constexpr double kInForward = 1.16, kInBackward = 1.5;

KernelList repeated(int count, double bytes) {
  KernelList list;
  for (int i = 0; i < count; ++i) list.push_back(kernel(bytes));
  return list;
}

double seconds_of(const StepTime& time, TimeClass time_class) {
  return time.by_class.at(static_cast<std::size_t>(time_class));
}

TEST(Cost, OfStepsThatShareAGenerationTheMeanIsTold) {
  KernelList list = repeated(15, 1e6);
  for (std::size_t i = 0; i < 5; ++i) list[i].share = 0.25;
  list[7].kind = KernelKind::kSynchronize;
  list[7].work = work::Wait{6};  // for the one that is the first where nothing is generated
  const StepTime time = cost(list, device(), rates()), all = cost(repeated(15, 1e6), device(), rates());
  KernelList rest;
  for (std::size_t i = 5; i < list.size(); ++i) rest.push_back(list[i]);
  for (Kernel& each : rest) each.share = 1;
  rest[2].work = work::Wait{1};
  for (Kernel& each : list) each.share = 1;
  const double generating = cost(list, device(), rates()).step_seconds,
               other = cost(rest, device(), rates()).step_seconds;
  EXPECT_LT(other, 0.75 * generating);
  EXPECT_DOUBLE_EQ(time.generating_step_seconds, generating);
  EXPECT_DOUBLE_EQ(time.other_step_seconds, other);
  EXPECT_NEAR(time.step_seconds, (generating + 3 * other) / 4, 1e-12);
  double sum = 0;
  for (const double seconds : time.by_class) sum += seconds;
  EXPECT_NEAR(sum, time.step_seconds, 1e-9);
  EXPECT_EQ(time.kernels, 10) << "14 and three times 9, of four steps";
  EXPECT_EQ(all.generating_step_seconds, 0) << "steps that are alike";
}

TEST(Cost, TheCardWaitsForTheHost) {
  const StepTime time = cost(repeated(50, 1e6), device(), rates());
  EXPECT_NEAR(time.step_seconds, 50 * 10e-6, 1e-9);
  EXPECT_NEAR(seconds_of(time, TimeClass::kElementwise), 50 * 1e-6, 1e-9);
  EXPECT_NEAR(seconds_of(time, TimeClass::kHost), 50 * 9e-6, 1e-9);
  EXPECT_TRUE(time.host_bound());
}

TEST(Cost, AStepIsBoundByWhatTheCardWaitsForMost) {
  EXPECT_EQ(cost(repeated(50, 1e6), device(), rates()).bound(), Bound::kHost);
  EXPECT_EQ(cost(repeated(50, 1e9), device(), rates()).bound(), Bound::kCard);
  StepTime time = cost(repeated(50, 1e6), device(), rates());
  time.by_class[static_cast<std::size_t>(TimeClass::kCommunication)] = 1;
  EXPECT_EQ(time.bound(), Bound::kLinks);
  time.by_class[static_cast<std::size_t>(TimeClass::kInput)] = 2;
  EXPECT_EQ(time.bound(), Bound::kData);
}

// The middle decides the step; a card that never waits is as quick beside any host.
TEST(Cost, TheMiddleHostIsTheMedianOfTheMachines) {
  const auto of_machines = [&](const std::vector<std::string>& levels) {
    const std::string path = testing::TempDir() + "middle_hosts.json";
    std::string text;
    for (const std::string& each : levels) {
      text += (text.empty() ? "" : ",") + (R"({"name": "of )" + each + R"(", "times": )" + each + "}");
    }
    std::ofstream(path) << R"({"hosts": [)" << text << "]}";
    DeviceRates of_hosts = rates();
    of_hosts.host.pointwise_us = 10;
    of_hosts.host.gap_us = 1.5;
    of_hosts.host.queue_kernels = 1024;
    add_measured_hosts(of_hosts, path);
    std::filesystem::remove(path);
    return of_hosts;
  };
  const DeviceRates three = of_machines({"1.5", "0.9", "1.1"});
  EXPECT_NEAR(three.host.pointwise_us, 11, 1e-9);
  EXPECT_EQ(three.host.gap_us, 1.5) << "the card's";
  EXPECT_EQ(three.host.queue_kernels, 1024) << "the driver's";
  ASSERT_EQ(three.hosts.size(), 2U) << "the ends of the range";
  EXPECT_EQ(three.hosts[0].name, "of 0.9");
  EXPECT_NEAR(three.hosts[0].rates.pointwise_us, 9, 1e-9);
  EXPECT_EQ(three.hosts[1].name, "of 1.5");
  EXPECT_NEAR(of_machines({"0.9", "1.5", "1.6", "1.0"}).host.pointwise_us, 10 * std::sqrt(1.5), 1e-9) << "of two";
}

// Calls without autograd take a share of what steps take on the middle machine; the states of the machines that were
// timed are the range's ends.
TEST(Cost, CallsTakeAShareOfStepsAndHaveTheirOwnRange) {
  const std::string path = testing::TempDir() + "hosts_of_calls.json";
  std::ofstream(path) << R"({"hosts": [{"name": "n", "times": 2}], "calls_over_steps": 0.75, "calls": [
    {"name": "a", "alone": 0.7, "shared": 1.1}, {"name": "b", "alone": 0.9, "shared": 1.3}]})";
  DeviceRates measured = rates();
  measured.host.python_us = 100;
  measured.host.call_ratio = 1;
  add_measured_hosts(measured, path);
  std::filesystem::remove(path);
  EXPECT_NEAR(measured.host.python_us, 200, 1e-9);
  EXPECT_NEAR(measured.host.python_us * measured.host.call_ratio, 150, 1e-9);
  ASSERT_EQ(measured.hosts.size(), 4U) << "those of steps, those of calls";
  EXPECT_EQ(measured.hosts[2].name, "a, a core to itself");
  EXPECT_NEAR(measured.hosts[2].rates.python_us * measured.hosts[2].rates.call_ratio, 70, 1e-9);
  EXPECT_EQ(measured.hosts[3].name, "b, a core whose other thread is busy");
  EXPECT_NEAR(measured.hosts[3].rates.python_us * measured.hosts[3].rates.call_ratio, 130, 1e-9);
}

TEST(Cost, MeasuredHostsGiveARange) {
  DeviceRates hosts = rates();
  hosts.hosts = {{"quick", hosts.host}, {"slow", hosts.host}};
  hosts.hosts[0].rates.pointwise_us = 5 / kInForward;
  hosts.hosts[1].rates.pointwise_us = 20 / kInForward;
  const StepTime time = cost(repeated(50, 1e6), device(), hosts);
  EXPECT_NEAR(time.step_seconds, 50 * 10e-6, 1e-9);
  constexpr double kSlow = 1.2214;  // a thread, by a standard deviation
  EXPECT_NEAR(time.hosts.least_seconds, 50 * 5e-6 / kSlow, 1e-8);
  EXPECT_NEAR(time.hosts.most_seconds, 50 * 20e-6 * kSlow, 1e-8);
  EXPECT_EQ(time.hosts.least_host, "quick");
  EXPECT_EQ(time.hosts.most_host, "slow");
  const StepTime of_card = cost(repeated(50, 1e9), device(), hosts);
  EXPECT_EQ(of_card.hosts.least_seconds, of_card.hosts.most_seconds);
}

// Python's thread issues forward, autograd's backward, and each is quick or slow by itself. Alone they make a step no
// longer in the middle; a card that is as quick as they are cannot make up for the slow one beside the quick one.
TEST(Cost, ThreadsThatDifferLeaveTheCardWaiting) {
  const auto step_of = [](double bytes) {
    KernelList list = repeated(50, bytes);
    for (int i = 0; i < 50; ++i) list.push_back(kernel(bytes, Phase::kBackward));
    return cost(list, device(), rates());
  };
  const double of_host = 50 * 10e-6 * (1 + kInBackward / kInForward);
  EXPECT_NEAR(step_of(1e6).step_seconds, of_host, 0.012 * of_host) << "the host alone";
  const StepTime balanced = step_of(1e7);
  EXPECT_GT(balanced.step_seconds, 1.04 * 100 * 10e-6);
  double sum = 0;
  for (const double seconds : balanced.by_class) sum += seconds;
  EXPECT_NEAR(sum, balanced.step_seconds, 1e-9);
  EXPECT_NEAR(balanced.forward_seconds + balanced.backward_seconds, balanced.step_seconds, 1e-9);
  EXPECT_NEAR(step_of(1e9).step_seconds, 100 * 1e-3, 1e-9) << "the card alone";
}

// A host that needs a third of a step decides nothing of it, unless it waits and begins again without a lead, and what
// comes then is gathered as it goes.
TEST(Cost, ThreadsThatDifferCountSoonerWhereTheHostGathersWithoutALead) {
  const auto step_of = [](bool waits) {
    KernelList list = repeated(1, 1e9);
    Kernel gathered = kernel(0, Phase::kForward);
    gathered.operator_class = OperatorClass::kCommunication;
    gathered.stream = CudaStream::kAllGather;
    gathered.work = work::Communication{.kind = Collective::kAllGather, .bytes = 1, .ranks = 2};
    list.push_back(gathered);
    if (waits) {
      list.push_back(kernel(0, Phase::kForward));
      list.back().kind = KernelKind::kSynchronize;
      list.back().work = work::Wait{};
    }
    for (int i = 0; i < 50; ++i) list.push_back(kernel(1e7, Phase::kForward));
    return cost(list, device(), rates()).step_seconds;
  };
  EXPECT_GT(step_of(true), step_of(false) + 40e-6) << "half of the processes are a fifth slower than the card";
}

// A call is not in a stream of calls: it begins with an idle card, has no autograd and no forward_us, and what it reads
// at each token keeps the host from running ahead.
TEST(Cost, ACallBeginsWithAnIdleCardAndWaitsForEachToken) {
  DeviceRates slow_calls = rates();
  slow_calls.host.forward_us = 500;
  KernelList list = repeated(1, 1e8);  // 100 us on the card
  for (int token = 0; token < 2; ++token) {
    Kernel wait = kernel(0, Phase::kDecode);
    wait.kind = KernelKind::kSynchronize;
    wait.work = work::Wait{};
    list.push_back(kernel(1e8, Phase::kDecode));
    list.push_back(wait);
  }
  const double issued = host_seconds(list[0], slow_calls.host, true);
  EXPECT_NEAR(issued, 0.83 * 10e-6 / kInForward, 1e-12);
  const StepTime call = cost(list, device(), slow_calls, Costed::kCall);
  // The second kernel is issued beside the first; the third after the wait for it.
  EXPECT_NEAR(call.step_seconds, issued + 100e-6 + 100e-6 + issued + 100e-6, 1e-9);
  EXPECT_NEAR(call.decode_seconds, call.step_seconds - issued - 100e-6, 1e-9);
  EXPECT_GT(cost(list, device(), slow_calls).step_seconds, call.step_seconds);
}

// Without autograd the model's Python goes with the instructions that its family's layers run, on every host.
TEST(Cost, PythonOfACallGoesWithItsFamilysInstructions) {
  DeviceRates measured = rates();
  measured.host.python_us = 100;
  measured.hosts = {{.name = "slower", .rates = measured.host}};
  measured.hosts.front().rates.python_us = 200;
  const double few = rates_of_call(measured, 38).host.python_us, many = rates_of_call(measured, 170).host.python_us;
  EXPECT_NEAR(few, 100 * (0.391 + 0.0042 * 38), 1e-9);
  EXPECT_NEAR(many - few, 100 * 0.0042 * (170 - 38), 1e-9);
  EXPECT_NEAR(rates_of_call(measured, 170).hosts.front().rates.python_us, 2 * many, 1e-9);
  const double not_counted = rates_of_call(measured, 0).host.python_us;
  EXPECT_GT(not_counted, few);
  EXPECT_LT(not_counted, many);
}

// The loops of two H200s: six times what c10d's own takes to issue.
TEST(Cost, AFunctionalCollectiveTakesTheHostLonger) {
  HostRates host = rates().host;
  host.collective_us = 40;
  Kernel gather = kernel(0);
  gather.work = work::Communication{.kind = Collective::kAllGather, .bytes = 1e6, .ranks = 2};
  const double usual = host_seconds(gather, host) * 1e6;
  gather.node = &kFunctionalCollective;
  EXPECT_NEAR(host_seconds(gather, host) * 1e6 - usual, 5.1 * 40, 1e-6);
}

// A host file says what calls without autograd take of what training says of the host; the card's own times stay.
TEST(Cost, ACallTakesItsShareOfAHostsRates) {
  DeviceRates measured = rates();
  measured.host.pointwise_us = 10;
  measured.host.generate_us = 3000;
  measured.host.gap_us = 1.5;
  measured.host.launch_latency_us = 5;
  measured.hosts = {{.name = "slower", .rates = measured.host}};
  measured.host.call_ratio = 0.8;
  measured.hosts.front().rates.call_ratio = 2;
  const DeviceRates call = rates_of_call(measured, 61);
  EXPECT_NEAR(call.host.pointwise_us, 8, 1e-9);
  EXPECT_NEAR(call.host.generate_us, 2400, 1e-9);
  EXPECT_EQ(call.host.gap_us, 1.5);
  EXPECT_EQ(call.host.launch_latency_us, 5);
  EXPECT_NEAR(call.hosts.front().rates.pointwise_us, 20, 1e-9);
}

TEST(Cost, CompiledCodeCostsTheHostALaunchAndACall) {
  DeviceRates rates_of_code = rates();
  rates_of_code.host.python_us = 15;
  rates_of_code.host.compiled_us = 4;
  rates_of_code.host.compiled_call_us = 100;
  rates_of_code.host.compiled_tensor_us = 0.5;
  Kernel fused = kernel(1e6);
  fused.node = &kCompiledCode;
  fused.views = 7;
  EXPECT_NEAR(host_seconds(fused, rates_of_code.host), 4e-6, 1e-12);
  Kernel call = kernel(0);
  call.op = &kCompiledCall;
  call.node = &kCompiledCode;
  call.kind = KernelKind::kPartOfPrevious;
  call.elements = 30;
  EXPECT_NEAR(host_seconds(call, rates_of_code.host), (100 + 30 * 0.5) * 1e-6, 1e-12);
}

TEST(Cost, AlikeKernelsAreToldTogetherTheLongestFirst) {
  KernelList list = repeated(3, 1e6);
  list.push_back(kernel(1e9));
  list.push_back(kernel(1e6));
  list.back().repeats = 2;
  const StepTime time = cost(list, device(), rates());
  ASSERT_EQ(time.costliest.size(), 2U);
  EXPECT_NEAR(time.costliest[0].seconds, 1e-3, 1e-9);
  EXPECT_EQ(time.costliest[1].calls, 5);
  EXPECT_NEAR(time.costliest[1].bytes, 5e6, 1);
  EXPECT_EQ(time.costliest[1].possible_flops_per_second, 0);
}

TEST(Cost, WhatAutocastConvertsHasNoPython) {
  HostRates host = rates().host;
  host.python_us = 15;
  Kernel each = kernel(1e6);
  EXPECT_NEAR(host_seconds(each, host), 25e-6, 1e-12);
  each.node = &kAutocast;
  EXPECT_NEAR(host_seconds(each, host), 14e-6, 1e-12);
}

TEST(Cost, TheHostRunsAhead) {
  const StepTime time = cost(repeated(50, 1e9), device(), rates());
  EXPECT_NEAR(time.step_seconds, 50 * 1e-3, 1e-9);
  EXPECT_NEAR(time.host_seconds, 50 * 10e-6, 1e-12);
  EXPECT_FALSE(time.host_bound());
}

TEST(Cost, AfterASynchronizationTheQueueIsEmpty) {
  KernelList list = repeated(10, 1e9);
  Kernel wait = kernel(0);
  wait.kind = KernelKind::kSynchronize;
  wait.work = work::Wait{};
  list.push_back(wait);
  // The card idles while the host issues the first kernel after it: 10 us for .item() itself, 10 us for the kernel.
  const StepTime time = cost(list, device(), rates());
  EXPECT_NEAR(time.step_seconds, 10 * 1e-3 + 10e-6, 1e-9);
}

TEST(Cost, ViewsAndNodesCostTheHost) {
  Kernel viewed = kernel(0, Phase::kBackward);
  viewed.views = 3;
  viewed.nodes = 4;
  EXPECT_NEAR(host_seconds(viewed, rates().host), (10 * kInBackward / kInForward + 3 * 0.76 + 4 * 2 * 0.515) * 1e-6,
              1e-12);
}

// GRPO's completions: under torch.no_grad(), as in a call.
TEST(Cost, WhatAStepGeneratesRunsWithoutAutograd) {
  Kernel of_layer = kernel(0, Phase::kForward);
  of_layer.views = 2;
  HostRates host = rates().host;
  host.python_us = 0;
  const double trained = host_seconds(of_layer, host);
  of_layer.phase = Phase::kDecode;
  EXPECT_LT(host_seconds(of_layer, host), trained);
  EXPECT_DOUBLE_EQ(host_seconds(of_layer, host), host_seconds(of_layer, host, true));
}

TEST(Cost, AMicroBatchStandsForOthers) {
  KernelList list = repeated(10, 1e9);
  for (Kernel& each : list) each.repeats = 5;
  EXPECT_NEAR(cost(list, device(), rates()).step_seconds, 5 * 10 * 1e-3, 1e-9);
}

// A full queue lets the host catch up with the card within the micro-batch that stands for others; they do not wait so.
// Behind 100 ms of the card and a queue of 15, 385 launches of 10 us are left to the host.
TEST(Cost, AMicroBatchThatWaitsForTheQueueStandsForOthersThatDoNot) {
  DeviceRates few = rates();
  few.host.queue_kernels = 15;
  const auto step_with = [&](std::int64_t executed, std::int64_t repeats) {
    KernelList list = repeated(10, 1e10);  // 10 ms each
    for (std::int64_t i = 0; i < executed * 20; ++i) {
      list.push_back(kernel(1e3));
      list.back().repeats = repeats;
    }
    list.push_back(kernel(1e6));
    return cost(list, device(), few).step_seconds;
  };
  EXPECT_NEAR(step_with(20, 1), 100e-3 + 385 * 10e-6, 0.1e-3);
  EXPECT_NEAR(step_with(1, 20), step_with(20, 1), 0.05e-3);
}

// The host, ten times as fast, may run ahead of one group of micro-batches and not wait for the queue in the next.
TEST(Cost, TheHostKeepsItsLeadOverMicroBatchesThatAreNotExecuted) {
  KernelList list = repeated(4000, 1e8);  // 100 us each
  for (std::size_t i = 0; i < list.size(); ++i) list[i].repeats = i < 100 ? 30 : 50;
  const StepTime time = cost(list, device(), rates());
  EXPECT_NEAR(time.step_seconds, (100 * 30 + 3900 * 50) * 100e-6, 1e-3);
  EXPECT_NEAR(seconds_of(time, TimeClass::kHost), 0, 1e-3);
}

TEST(Cost, WhatIsReducedIsHiddenAndWhatIsGatheredIsNot) {
  Kernel reduced = kernel(0, Phase::kBackward);
  reduced.stream = CudaStream::kReduceScatter;
  // Of 2 ranks: half crosses 1e11 B/s in 0.2 ms.
  reduced.work = work::Communication{.kind = Collective::kReduceScatter, .bytes = 4e7, .ranks = 2};
  KernelList list;
  list.push_back(reduced);
  for (int i = 0; i < 10; ++i) list.push_back(kernel(1e9, Phase::kBackward));
  list.push_back(kernel(1e6, Phase::kOptimizer));
  // Kernels follow each other 0.4 us later on hosts of several cards, and 0.9 where other streams hold work that waits.
  EXPECT_NEAR(cost(list, device(), rates()).step_seconds, 10e-3 + 1e-6 + 11 * 1.3e-6, 1e-8);
  list[0].stream = CudaStream::kPointToPoint;
  EXPECT_NEAR(cost(list, device(), rates()).step_seconds, 10e-3 + 1e-6 + 11 * 0.4e-6, 1e-8);
  list[0].stream = CudaStream::kAllGather;
  // 2 s: longer than what runs before it.
  list[0].work = work::Communication{.kind = Collective::kAllGather, .bytes = 4e11, .ranks = 2};
  EXPECT_GT(seconds_of(cost(list, device(), rates()), TimeClass::kCommunication), 1.9);
}

// 3000 launches of 8.6 us by the host and 1 us by the card, behind 20 ms of the card: of these 2320 could be issued,
// 1024 fit the queue, so the host has 1976 left when the first of them runs.
TEST(Cost, TheQueueHoldsSoManyLaunchesOfOneOperator) {
  KernelList list;
  list.push_back(kernel(20e9));
  Kernel loop = kernel(3000e6, Phase::kOptimizer);
  loop.launches = 3000;
  list.push_back(loop);
  const StepTime time = cost(list, device(), rates());
  EXPECT_NEAR(time.step_seconds, 20e-3 + 1976 * 10e-6 / kInForward,
              0.3e-3);  // half of the step is the host's: its threads differ
  EXPECT_TRUE(time.host_bound());
}

TEST(Cost, HostWorkTakesTheHostAndNothingOfTheCard) {
  DeviceRates slow = rates();
  slow.host.trainer_batch_us = 3;
  Kernel python = kernel(0);
  python.kind = KernelKind::kPartOfPrevious;
  python.op = &kHostWorkOperators[static_cast<std::size_t>(HostWork::kTrainerBatch)];
  python.work = work::OfHost{.what = HostWork::kTrainerBatch, .times = 100};
  EXPECT_NEAR(host_seconds(python, slow.host), 300e-6, 1e-12);
  KernelList list = repeated(1, 1e6);
  list.push_back(python);
  const StepTime time = cost(list, device(), slow);
  EXPECT_NEAR(time.step_seconds, 310e-6, 1e-9);
  EXPECT_EQ(time.kernels, 1);
}

// Python of 2 us a tensor, then 4 passes over 100 tensors of 1 us each: the card, 1 ms long, starts with the first.
TEST(Cost, TheCardStartsWithTheFirstPassOverAList) {
  DeviceRates slow = rates();
  slow.host.optimizer_tensor_us = 2;
  slow.host.tensor_us = 1;
  slow.multi_tensor = slow.vectorized;
  Kernel loop = kernel(0, Phase::kOptimizer);
  loop.kind = KernelKind::kPartOfPrevious;
  loop.op = &kHostWorkOperators[static_cast<std::size_t>(HostWork::kOptimizerTensor)];
  loop.work = work::OfHost{.what = HostWork::kOptimizerTensor, .times = 100};
  Kernel step = kernel(1e9, Phase::kOptimizer);
  step.kind = KernelKind::kMultiTensor;
  step.elements = 1e9 / 4 / 4;  // float32
  step.work = work::TensorList{.tensors = 100};
  KernelList list;
  list.push_back(loop);
  list.push_back(step);
  Kernel wait = kernel(0);
  wait.kind = KernelKind::kSynchronize;
  wait.work = work::Wait{};
  list.push_back(wait);
  const double issuing = 10e-6 / kInForward + 400e-6, of_tensors = 4 * 100 * 0.06e-6;
  EXPECT_NEAR(host_seconds(step, slow.host), issuing, 1e-12);
  EXPECT_NEAR(cost(list, device(), slow).step_seconds, 200e-6 + issuing / 4 + 1e-3 + of_tensors, 1e-9);
}

TEST(Cost, OperatorsBesideExpertsTakeLonger) {
  KernelList list = repeated(1, 0);
  EXPECT_FALSE(has_grouped_experts(list));
  list[0].op = &aten::kGroupedMm;
  EXPECT_TRUE(has_grouped_experts(list));
  DeviceRates of = rates();
  of.hosts.emplace_back().rates = of.host;
  const DeviceRates among = rates_among_experts(of);
  EXPECT_DOUBLE_EQ(among.host.pointwise_us, 1.08 * of.host.pointwise_us);
  EXPECT_DOUBLE_EQ(among.hosts[0].rates.node_us, 1.08 * of.host.node_us);
  EXPECT_DOUBLE_EQ(among.host.launch_latency_us, of.host.launch_latency_us);
}

// A rate limiter: the host may not issue the third kernel before the first has finished.
TEST(Cost, TheHostWaitsForAnEarlierKernel) {
  KernelList list = repeated(2, 1e9);
  Kernel wait = kernel(0);
  wait.kind = KernelKind::kSynchronize;
  wait.work = work::Wait{.kernels = 1};
  list.push_back(wait);
  const double limited = cost(list, device(), rates()).step_seconds;
  EXPECT_NEAR(limited, 2e-3, 1e-6) << "the second kernel runs meanwhile";
  list[2].work = work::Wait{.kernels = 2};
  EXPECT_NEAR(cost(list, device(), rates()).step_seconds, 2e-3 + 10e-6, 1e-6) << "now the card runs dry";
}

TEST(Cost, AKernelIsSlowerBesideACollective) {
  DeviceRates shared = rates();
  shared.link.memory_contention = 0.2;
  Kernel reduced = kernel(0, Phase::kBackward);
  reduced.stream = CudaStream::kReduceScatter;
  // Of 2 ranks over 1e11 B/s: 5 ms.
  reduced.work = work::Communication{.kind = Collective::kReduceScatter, .bytes = 1e9, .ranks = 2};
  KernelList list;
  list.push_back(reduced);
  for (int i = 0; i < 10; ++i) list.push_back(kernel(1e9, Phase::kBackward));
  list.push_back(kernel(1e6, Phase::kOptimizer));
  const StepTime time = cost(list, device(), shared);
  // 5 ms long: kernels that would take 5 / 1.2 ms take 5.
  EXPECT_NEAR(seconds_of(time, TimeClass::kCommunication), 5e-3 - 5e-3 / 1.2, 0.1e-3);
}

TEST(Cost, CopiesTakeTheBusAndPageableOnesTheHostToo) {
  DeviceRates bus = rates();
  bus.host.copy_us = 0;
  bus.transfer = {.latency_us = 0, .pinned_bytes_per_second = 1e10, .pageable_bytes_per_second = 5e9};
  Kernel copy = kernel(1e8);
  copy.kind = KernelKind::kCopyToHost;
  copy.operator_class = OperatorClass::kMovement;
  copy.work = work::HostCopy{.pinned = true};
  KernelList list = repeated(1, 1e6);
  list.push_back(copy);
  EXPECT_NEAR(seconds_of(cost(list, device(), bus), TimeClass::kMovement), 10e-3, 1e-9);
  list[1].work = work::HostCopy{.pinned = false};
  const StepTime time = cost(list, device(), bus);
  EXPECT_NEAR(seconds_of(time, TimeClass::kMovement), 20e-3, 1e-9);
  EXPECT_NEAR(seconds_of(time, TimeClass::kHost), 10e-6, 1e-9) << "nothing is queued when the copy is done";
}

// Expected largest of n standard normal variables: 0.564, 1.029, 1.424, 2.349 (tables of order statistics); 0.2 of it.
TEST(Cost, RanksWaitForTheSlowestHost) {
  EXPECT_EQ(slowest_of(1, 0.2), 1);
  EXPECT_NEAR(slowest_of(2, 0.2), 1 + 0.2 * 0.564, 0.01);
  EXPECT_NEAR(slowest_of(4, 0.2), 1 + 0.2 * 1.029, 0.01);
  EXPECT_NEAR(slowest_of(8, 0.2), 1 + 0.2 * 1.424, 0.01);
  EXPECT_NEAR(slowest_of(64, 0.2), 1 + 0.2 * 2.349, 0.01);
  KernelList list = repeated(100, 1e6);  // 1 us each; the host takes 10
  const double alone = cost(list, device(), rates()).step_seconds;
  Kernel reduced = kernel(0, Phase::kBackward);
  reduced.stream = CudaStream::kReduceScatter;
  reduced.work = work::Communication{.kind = Collective::kReduceScatter, .bytes = 1, .ranks = 4};
  list.push_back(reduced);
  EXPECT_NEAR(cost(list, device(), rates()).step_seconds, slowest_of(4, 0.2) * alone, 0.02 * alone);
}

TEST(Cost, OptimizersOverDTensorsCostMore) {
  DeviceRates sharded = rates();
  sharded.host.tensor_us = 1;
  sharded.host.sharded_tensor_us = 10;
  sharded.host.sharded_operator_us = 50;
  Kernel list_kernel = kernel(4e3, Phase::kOptimizer);
  list_kernel.kind = KernelKind::kMultiTensor;
  list_kernel.elements = 1000;  // float32: one pass
  list_kernel.work = work::TensorList{.tensors = 5};
  EXPECT_NEAR(host_seconds(list_kernel, sharded.host), (10 / kInForward + 5 * 1) * 1e-6, 1e-12);
  list_kernel.work = work::TensorList{.tensors = 5, .of_dtensors = true};
  EXPECT_NEAR(host_seconds(list_kernel, sharded.host), (10 / kInForward + 5 * 10) * 1e-6, 1e-12);
  list_kernel.launches = 4;
  EXPECT_NEAR(host_seconds(list_kernel, sharded.host), 4 * 50 * 1e-6, 1e-12);
}

TEST(Cost, ClassesSumToTheStep) {
  KernelList list = repeated(20, 3e7);
  list[3].operator_class = OperatorClass::kNormalization;
  list[7].phase = Phase::kOptimizer;
  const StepTime time = cost(list, device(), rates());
  double sum = 0;
  for (const double each : time.by_class) sum += each;
  EXPECT_NEAR(sum, time.step_seconds, 1e-12);
  EXPECT_NEAR(time.forward_seconds + time.backward_seconds + time.optimizer_seconds, time.step_seconds, 1e-12);
}

}  // namespace
}  // namespace memcalc
