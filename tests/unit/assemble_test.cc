// report/assemble: what the stages yield, put into a Report. The traces are made by hand.
#include "memcalc/report/assemble.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "memcalc/base/error.h"

namespace memcalc {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr Operator kMm{"aten::mm"};
constexpr Operator kGelu{"aten::gelu"};
constexpr Operator kMmBackward{"MmBackward0"};
constexpr Operator kCudnnAttention{"aten::_scaled_dot_product_cudnn_attention"};

class TraceBuilder {
 public:
  std::int32_t allocate(Bytes bytes, Category category, Phase phase, const Operator* op = nullptr,
                        const Operator* node = nullptr, std::int16_t step = 0) {
    trace.blocks.push_back({bytes, category});
    const auto block = static_cast<std::int32_t>(trace.blocks.size()) - 1;
    trace.events.push_back({op, node, block, EventKind::kAllocate, phase, step});
    return block;
  }
  void free(std::int32_t block, Phase phase, std::int16_t step = 0) {
    trace.events.push_back({nullptr, nullptr, block, EventKind::kFree, phase, step});
  }
  Trace trace;
};

// 1000 + 1000 (weights) + 64 (input), then two activations of 512, a temporary that dies, a gradient at the peak.
SymbolicRun small_run() {
  TraceBuilder builder;
  builder.allocate(1000, Category::kWeights, Phase::kBuild, nullptr, nullptr, -1);
  builder.allocate(1000, Category::kWeights, Phase::kBuild, nullptr, nullptr, -1);
  builder.allocate(64, Category::kInputs, Phase::kBuild, nullptr, nullptr, -1);
  builder.trace.events.push_back({.kind = EventKind::kEmptyCache});
  builder.allocate(512, Category::kActivations, Phase::kForward, &kGelu);
  const auto temporary = builder.allocate(4096, Category::kTemporaries, Phase::kForward, &kGelu);
  builder.free(temporary, Phase::kForward);
  builder.allocate(512, Category::kActivations, Phase::kForward, &kGelu);
  builder.allocate(8000, Category::kGradients, Phase::kBackward, &kMm, &kMmBackward);
  SymbolicRun run;
  run.trace = builder.trace;
  run.parameters = {{"a", 250, DType::kFloat32, true, {250}}, {"b", 250, DType::kFloat32, false, {250}}};
  run.kernels = {
      {.op = &kMm, .operator_class = OperatorClass::kContraction, .phase = Phase::kForward, .flops = 10, .bytes = 1},
      {.op = &kMm, .operator_class = OperatorClass::kContraction, .phase = Phase::kBackward, .flops = 20, .bytes = 2},
      {.op = &kMm,
       .operator_class = OperatorClass::kContraction,
       .phase = Phase::kBackward,
       .recomputed = true,
       .flops = 5,
       .bytes = 4},
      {.op = &kGelu, .operator_class = OperatorClass::kOptimizer, .phase = Phase::kOptimizer, .flops = 3, .bytes = 8}};
  run.assumptions = {"the step assumed something"};
  run.not_modelled = {"the step left something out"};
  return run;
}

DeviceSpec card(Bytes memory) {
  return {.name = "card",
          .memory_bytes = memory,
          .context_bytes = 600 * kMiB,
          .kernel_bytes = 100 * kMiB,
          .kernel_bytes_with_cudnn = 120 * kMiB,
          .validated = true};
}

Report assembled(const SymbolicRun& symbolic, const DeviceSpec& device) {
  return assemble({.name = "m", .assumptions = {"the model assumed something"}}, {}, device, symbolic,
                  replay(symbolic.trace));
}

TEST(Assemble, ChainsOfOperators) {
  EXPECT_EQ(chain_of({.op = &kMm, .node = &kMmBackward}), "MmBackward0>aten::mm");
  EXPECT_EQ(chain_of({.op = &kMm}), "aten::mm");
  EXPECT_EQ(chain_of({.node = &kMmBackward}), "MmBackward0");
  EXPECT_EQ(chain_of({}), "");
}

TEST(Assemble, ThePeakAndWhoIsThere) {
  const Report report = assembled(small_run(), card(80 * kGiB));
  EXPECT_EQ(report.peak_phase, Phase::kBackward);
  EXPECT_EQ(report.peak_operator, "MmBackward0>aten::mm");
  EXPECT_EQ(report.peak_step, 0);
  ASSERT_EQ(report.contributors.size(), 4U);
  EXPECT_EQ(report.contributors[0].operator_chain, "MmBackward0>aten::mm");
  EXPECT_EQ(report.contributors[0].total_bytes, 8000);
  EXPECT_EQ(report.contributors[1].operator_chain, "parameter");
  EXPECT_EQ(report.contributors[1].blocks, 2);
  EXPECT_EQ(report.contributors[1].total_bytes, 2000);
  EXPECT_EQ(report.contributors[2].operator_chain, "aten::gelu");
  EXPECT_EQ(report.contributors[2].blocks, 2);
  EXPECT_EQ(report.contributors[3].operator_chain, "input");
}

// Files define operators of their own: two of one name are one contributor.
TEST(Assemble, OperatorsOfOneNameAreOneContributor) {
  constexpr Operator here{"aten::_to_copy"}, there{"aten::_to_copy"}, node{"ToCopyBackward0"};
  TraceBuilder builder;
  for (const Operator* op : {&here, &there}) {
    builder.allocate(1024, Category::kActivations, Phase::kForward, op);
    builder.allocate(1024, Category::kActivations, Phase::kForward, op, &node);
  }
  builder.allocate(2048, Category::kActivations, Phase::kForward, &there);
  const std::vector<PeakContributor> rows = contributors_at(builder.trace, builder.trace.events.size() - 1);
  ASSERT_EQ(rows.size(), 3U);
  for (const PeakContributor& row : rows) EXPECT_EQ(row.total_bytes, 2048) << row.operator_chain;
  EXPECT_EQ(rows[0].operator_chain, "ToCopyBackward0>aten::_to_copy");
  EXPECT_EQ(rows[0].blocks, 2);
  EXPECT_EQ(rows[1].blocks, 1);  // of 2048 bytes
  EXPECT_EQ(rows[2].blocks, 2);
}

TEST(Assemble, ContributorsSumToTheCategories) {
  const Report report = assembled(small_run(), card(80 * kGiB));
  std::array<Bytes, kCategoryCount> sums{};
  for (const auto& each : report.contributors) sums[static_cast<std::size_t>(each.category)] += each.total_bytes;
  EXPECT_EQ(sums, report.memory.categories_at_peak);
  const Bytes total = std::accumulate(sums.begin(), sums.end(), Bytes{0}) + report.memory.slack_at_peak;
  EXPECT_EQ(total, report.memory.peak_allocated);
}

TEST(Assemble, ParametersAndAccounting) {
  const Report report = assembled(small_run(), card(80 * kGiB));
  EXPECT_EQ(report.parameters_total, 500);
  EXPECT_EQ(report.parameters_trainable, 250);
  EXPECT_EQ(report.parameters_active, 500) << "no experts";
  SymbolicRun mixture = small_run();
  mixture.inactive_parameters = 120;
  EXPECT_EQ(assembled(mixture, card(80 * kGiB)).parameters_active, 380);
  EXPECT_EQ(report.accounting.profile.front().total_bytes, 2000);
}

TEST(Assemble, FlopsByPhase) {
  const Report report = assembled(small_run(), card(80 * kGiB));
  const FlopRow& contraction = report.flops[static_cast<std::size_t>(OperatorClass::kContraction)];
  EXPECT_EQ(contraction.forward, 10);
  EXPECT_EQ(contraction.backward, 20);
  EXPECT_EQ(contraction.recomputation, 5);
  EXPECT_EQ(contraction.bytes_moved, 7);
  EXPECT_EQ(report.flops[static_cast<std::size_t>(OperatorClass::kOptimizer)].optimizer, 3);
}

TEST(Assemble, DeviceUseIsReservedContextAndKernels) {
  SymbolicRun symbolic = small_run();
  Report report = assembled(symbolic, card(80 * kGiB));
  EXPECT_EQ(report.device_used_bytes, report.memory.peak_reserved + 700 * kMiB);
  EXPECT_TRUE(report.fits());
  symbolic.kernels[0].op = &kCudnnAttention;  // its library loads more
  report = assembled(symbolic, card(80 * kGiB));
  EXPECT_EQ(report.device_used_bytes, report.memory.peak_reserved + 720 * kMiB);
}

// Managed memory lies on the card in steps of 128 MiB while there is room, and never decides whether a run fits.
TEST(Assemble, PagedStatesTakeWhatRoomThereIs) {
  SymbolicRun symbolic = small_run();
  const Bytes without = *assembled(symbolic, card(80 * kGiB)).device_used_bytes;
  symbolic.managed_bytes = 130 * kMiB;
  Report report = assembled(symbolic, card(80 * kGiB));
  EXPECT_EQ(report.managed_bytes, 130 * kMiB);
  EXPECT_EQ(report.device_used_bytes, without + 256 * kMiB);
  report = assembled(symbolic, card(without + 100 * kMiB));
  EXPECT_EQ(report.managed_on_device_bytes, 100 * kMiB);
  EXPECT_EQ(report.device_used_bytes, without + 100 * kMiB);
  EXPECT_TRUE(report.fits());
  report = assembled(symbolic, card(without - 1));
  EXPECT_EQ(report.device_used_bytes, without);
  EXPECT_FALSE(report.fits());
}

TEST(Assemble, FitsToTheLastByte) {
  const Bytes needed = *assembled(small_run(), card(80 * kGiB)).device_used_bytes;
  EXPECT_TRUE(assembled(small_run(), card(needed)).fits());
  EXPECT_FALSE(assembled(small_run(), card(needed - 1)).fits());
}

TEST(Assemble, AnUnknownContextIsSaid) {
  DeviceSpec device = card(80 * kGiB);
  device.context_bytes.reset();
  const Report report = assembled(small_run(), device);
  EXPECT_EQ(report.device_used_bytes, std::nullopt);
  EXPECT_TRUE(report.fits());
  EXPECT_THAT(report.assumptions, Contains(HasSubstr("is not known: reserved memory alone is compared")));
}

TEST(Assemble, WhatEachStageSaysIsKept) {
  const Report report = assembled(small_run(), card(80 * kGiB));
  EXPECT_THAT(report.assumptions, Contains("the step assumed something"));
  EXPECT_THAT(report.assumptions, Contains("the model assumed something"));
  EXPECT_THAT(report.not_modelled, Contains("the step left something out"));
  EXPECT_NE(report.profile, "");
}

TEST(Assemble, AnEmptyRun) {
  const Report report = assembled({}, card(80 * kGiB));
  EXPECT_EQ(report.memory.peak_allocated, 0);
  EXPECT_TRUE(report.contributors.empty());
  EXPECT_TRUE(report.fits());
}

}  // namespace
}  // namespace memcalc
