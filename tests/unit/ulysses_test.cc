// models/ulysses_attention and train/parallel/ulysses: what the exchange takes, and what ranks share beside it.
#include "memcalc/models/ulysses_attention.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/symbolic/within_call.h"
#include "memcalc/train/step.h"
#include "support/small_models.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

constexpr std::int64_t kRanks = 4;

/// What attention sees of `heads` heads of keys on four ranks, each with 16 of 64 positions of two sequences.
std::vector<Shape> shapes_within(std::int64_t heads) {
  test::TapeBench bench;
  const Tensor query = bench.input({2, 8, 16, 32}), key = bench.input({2, heads, 16, 32});
  const Tensor value = bench.input({2, heads, 16, 32});
  std::vector<Shape> seen;
  const AttentionResult result =
      ulysses_attention(query, key, value, kRanks, [&](const Tensor& q, const Tensor& k, const Tensor& v) {
        seen = {q.shape(), k.shape(), v.shape()};
        return attention_interface(q, k, v, {}, {.causal = true});
      });
  seen.push_back(result.output.shape());
  bench.backward(result.output);
  for (const Tensor& each : bench.gradients) seen.push_back(each.shape());
  return seen;
}

TEST(UlyssesTest, EachRankAttendsToWholeSequencesWithItsHeads) {
  const Shape whole{2, 2, 64, 32}, output{2, 16, 8 * 32}, mine{2, 8, 16, 32};
  EXPECT_EQ(shapes_within(8), (std::vector<Shape>{whole, whole, whole, output, mine, mine, mine}));
}

TEST(UlyssesTest, FewerKeyHeadsThanRanksAreRepeated) {
  const Shape whole{2, 2, 64, 32}, repeated{2, 1, 64, 32}, output{2, 16, 8 * 32}, mine{2, 8, 16, 32}, few{2, 2, 16, 32};
  EXPECT_EQ(shapes_within(2), (std::vector<Shape>{whole, repeated, repeated, output, mine, few, few}));
}

RunSpec run_on(std::int64_t gpus, std::int64_t context) {
  RunSpec run;
  run.batch_size = 2;
  run.sequence_length = 128;
  run.precision = Precision::kBf16;
  run.training().loop = Loop::kBare;
  run.parallel.gpus = gpus;
  run.parallel.context = context;
  run.parallel.context_type = ContextParallel::kUlysses;
  run.parallel.data_parallel = DataParallel::kDsZero2;
  run.parallel.layout = DeepSpeedZero{};
  return run;
}

SymbolicRun run_symbolically(const RunSpec& run) {
  const ModelSpec llama{.name = "small", .model_type = "llama", .architecture = test::llama_256_wide(2)};
  return memcalc::run_symbolically(llama, run, test::h100(), 0);
}

TEST(UlyssesTest, RanksOfASequenceShareStatesLikeThoseOfOtherData) {
  const SymbolicRun alone = run_symbolically(run_on(4, 1)), beside = run_symbolically(run_on(4, 2));
  ASSERT_EQ(alone.held.size(), beside.held.size());
  for (std::size_t i = 0; i < alone.held.size(); ++i) EXPECT_EQ(alone.held[i].bytes, beside.held[i].bytes);
}

// stage3.py reduces the ranks' gradients in float32: the bucket's copy writes and two passes read and write 4 bytes in
// place of 2 a number, and the parts are converted back before they are kept.
TEST(UlyssesTest, Stage3ConvertsItsPartsBack) {
  const auto moved = [](std::int64_t context) {
    RunSpec spec = run_on(4, context);
    spec.parallel.data_parallel = DataParallel::kDsZero3;
    const SymbolicRun run = run_symbolically(spec);
    double bytes = 0;
    for (const Kernel& kernel : run.kernels) {
      if (kernel.phase == Phase::kBackward && is_of_host_work(kernel) && !kernel.communicates()) bytes += kernel.bytes;
    }
    std::int64_t parameters = 0;
    for (const ParameterInfo& each : run.parameters) parameters += each.elements;
    return std::pair(bytes, static_cast<double>(parameters));
  };
  const auto [beside, parameters] = moved(2);
  EXPECT_EQ(beside - moved(1).first, (2 + 4 + 4) * parameters + 6 * parameters / 4);
}

TEST(UlyssesTest, EachLayerExchangesFourTimesAndItsGradientsAsOften) {
  const SymbolicRun run = run_symbolically(run_on(4, 4));
  std::size_t exchanges = 0;
  for (const Kernel& kernel : run.kernels) {
    const auto* communication = kernel.as<work::Communication>();
    exchanges += communication != nullptr && communication->kind == Collective::kAllToAll ? 1 : 0;
  }
  EXPECT_EQ(exchanges, 2U * 8);
}

}  // namespace
}  // namespace memcalc
