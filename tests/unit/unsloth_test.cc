// symbolic/ops/unsloth: what its functions keep for backward and take, as unsloth 2026.10.9 writes them. The requests
// of a layer are those that were recorded on an H100 (tests/measured/jobs/unsloth.jsonl is of the same runs).
#include <gtest/gtest.h>

#include <algorithm>

#include "memcalc/models/unsloth.h"
#include "memcalc/symbolic/checkpoint.h"
#include "memcalc/symbolic/ops/unsloth.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

using test::TapeBench;

constexpr std::int64_t kRank = 16;

UnslothProduct product(TapeBench& bench, std::int64_t in, std::int64_t out) {
  UnslothProduct made;
  made.lora_a = bench.input({kRank, in});
  made.lora_b = bench.input({out, kRank});
  return made;
}

Bytes held(const TapeBench& bench) {
  Bytes sum = 0;
  for (const Bytes each : bench.requests()) sum += each;
  return sum;
}

TEST(Unsloth, TheMlpKeepsItsInputAndTwoProductsButNotTheirActivation) {
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input({2, 512, 2048}, DType::kBFloat16);
  const std::array<UnslothProduct, 3> products = {product(bench, 2048, 8192), product(bench, 2048, 8192),
                                                  product(bench, 8192, 2048)};
  bench.start();
  const Tensor y = unsloth_mlp(x, products);
  EXPECT_EQ(held(bench), 2 * 16'777'216 + 4'194'304) << "gate, up and the result";
  const auto requests = bench.requests();
  EXPECT_EQ(std::count(requests.begin(), requests.end(), 16'777'216), 3);
  EXPECT_EQ(std::count(requests.begin(), requests.end(), -16'777'216), 1) << "the activation";
}

TEST(Unsloth, TheGradientOfTheInputIsWrittenOverIt) {
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input({2, 512, 2048}, DType::kBFloat16);
  const std::array<UnslothProduct, 3> products = {product(bench, 2048, 2048), product(bench, 2048, 512),
                                                  product(bench, 2048, 512)};
  const auto [query, key, value] = unsloth_qkv(x, products);
  bench.start();
  bench.backward(query);
  const auto requests = bench.requests();
  EXPECT_EQ(std::count(requests.begin(), requests.end(), 4'194'304), 0) << "no tensor of the input's size";
}

TEST(Unsloth, TheLossHoldsChunksOfLogitsInFloat32) {
  EXPECT_EQ(unsloth_chunk_rows(1022, 2048, 128256), 512) << "262,668,288 bytes, as recorded";
  EXPECT_EQ(unsloth_chunk_rows(100, 2048, 128256), 100);
  EXPECT_EQ(unsloth_chunk_rows(2046, 2048, 32768), 2046) << "2,371 rows have as many logits as the least chunk";
  TapeBench bench;
  bench.warm_up();
  const Tensor hidden = bench.input({2, 512, 2048}, DType::kBFloat16);
  const Tensor weight = bench.input({128256, 2048}, DType::kBFloat16, false);
  const Tensor labels = bench.input({2, 512}, DType::kInt64, false);
  bench.start();
  const Tensor loss = unsloth_linear_cross_entropy(hidden, weight, labels, 1022);
  const auto requests = bench.requests();
  EXPECT_EQ(*std::max_element(requests.begin(), requests.end()), 262'668'288);
  EXPECT_EQ(held(bench), 4'194'304 + 4) << "the gradient of the hidden states, and the loss";
}

TEST(Unsloth, ManyTargetsAreTakenInTilesOfTheVocabulary) {
  TapeBench bench;
  bench.warm_up();
  const Tensor hidden = bench.input({8, 1024, 2048}, DType::kBFloat16);
  const Tensor weight = bench.input({128256, 2048}, DType::kBFloat16, false);
  const Tensor labels = bench.input({8, 1024}, DType::kInt64, false);
  bench.start();
  const Tensor loss = unsloth_linear_cross_entropy(hidden, weight, labels, 8184);
  const auto requests = bench.requests();
  EXPECT_EQ(*std::max_element(requests.begin(), requests.end()), 4096 * 16384 * 4) << "256 MiB of logits";
}

TEST(Unsloth, InputsOfCheckpointedLayersWaitOnTheHostButForTheLastOfLaterPasses) {
  TapeBench bench;
  const auto layer = [](const KeptTensors& kept) { return unsloth_rms_norm(kept[0], kept[0]); };
  const auto inputs_held = [&] {
    Tensor x = bench.input({4, 512, 2048}, DType::kBFloat16);
    bench.start();
    for (int i = 0; i < 3; ++i) x = run_checkpointed_by_unsloth(x, layer);
    const Bytes sum = held(bench);
    bench.backward(x);
    return sum;
  };
  constexpr Bytes kInput = 8'388'608, kBuffer = 2'097'152;
  EXPECT_EQ(inputs_held(), kInput + kInput + kBuffer) << "the output, and two buffers of which one grew";
  EXPECT_EQ(inputs_held(), 2 * kInput + kInput - kBuffer) << "the output, the last layer's input, the other buffer";
}

TEST(Unsloth, ASmallInputStaysOnTheCard) {
  TapeBench bench;
  Tensor x = bench.input({1, 128, 2048}, DType::kBFloat16);
  bench.start();
  for (int i = 0; i < 2; ++i) {
    x = run_checkpointed_by_unsloth(x, [](const KeptTensors& kept) { return unsloth_rms_norm(kept[0], kept[0]); });
  }
  EXPECT_EQ(held(bench), 2 * 128 * 2048 * 2);
}

TEST(Unsloth, PositionsAreMadeForTheModelsOrAtLeast32768) {
  EXPECT_EQ(unsloth_position_rows(131072, 2048), 32768);
  EXPECT_EQ(unsloth_position_rows(131072, 40000), 40960);
  EXPECT_EQ(unsloth_position_rows(2048, 2048), 2048);
  EXPECT_EQ(unsloth_position_rows(32768, 512), 32768);
}

}  // namespace
}  // namespace memcalc
