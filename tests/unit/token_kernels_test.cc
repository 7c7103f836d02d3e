// cost/: kernels of a token that is generated, as an H100 and an H200 took them
// (tests/measured/decode_kernels_h200.jsonl.gz, inference_parts_h100.jsonl).
#include <gtest/gtest.h>

#include <cstdint>

#include "memcalc/cost/kernel_time.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/view.h"
#include "support/plain_rates.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

DeviceSpec hopper(double memory_bandwidth) {
  DeviceSpec card = test::device();
  card.compute_capability_major = 9;
  card.multiprocessors = 132;
  card.memory_bandwidth_bytes_per_second = memory_bandwidth;
  card.fp32_flops_per_second = 67e12;
  card.bf16_flops_per_second = 989.4e12;
  return card;
}
DeviceSpec hopper_h100() { return hopper(3.35e12); }
DeviceSpec hopper_h200() { return hopper(4.8e12); }

struct TokensAttention {
  std::int64_t batch, heads, key_heads, keys, width;
};

double token_microseconds(KernelKind kind, const TokensAttention& of) {
  Kernel one = test::kernel(0);
  one.kind = kind;
  one.dtype = DType::kBFloat16;
  one.elements = static_cast<double>(of.batch * of.key_heads * of.keys * of.width);
  one.work = work::Attention{.heads = of.batch * of.heads, .queries = 1, .keys = of.keys, .width = of.width};
  return 1e6 * kernel_seconds(one, hopper_h200(), test::rates());
}

TEST(TokenKernels, CudnnsAttentionHasABlockForTheHeadsThatShareKeys) {
  const auto microseconds = [](const TokensAttention& of) {
    return token_microseconds(KernelKind::kCudnnAttention, of);
  };
  EXPECT_NEAR(microseconds({64, 32, 32, 600, 64}), 75.9, 0.1 * 75.9) << "memory decides";
  EXPECT_NEAR(microseconds({16, 32, 8, 1100, 128}), 21.3, 0.1 * 21.3) << "four heads read the same keys";
  EXPECT_NEAR(microseconds({128, 32, 32, 150, 80}), 96, 0.15 * 96) << "the second tile is computed whole";
  EXPECT_NEAR(microseconds({64, 8, 4, 600, 256}), 55.4, 0.1 * 55.4) << "wide heads";
  EXPECT_NEAR(microseconds({1, 32, 8, 1100, 128}), 8.8, 0.15 * 8.8) << "shared among blocks, and joined";
}

TEST(TokenKernels, FlashAttentionReadsTheKeysOnce) {
  const double bytes = 2.0 * 8 * 1000 * 64 * 2;
  EXPECT_NEAR(token_microseconds(KernelKind::kFlashAttention, {1, 32, 8, 1000, 64}), 5.8 + bytes / 4.8e6 / 0.93, 1e-6);
}

TEST(TokenKernels, AFewRowsOfFloat32AreBoundByTheMultiprocessors) {
  const auto microseconds = [](std::int64_t rows, const DeviceSpec& card) {
    Kernel product = test::kernel(4.0 * (14336 * 4096 + static_cast<double>(rows) * (14336 + 4096)));
    product.kind = KernelKind::kMatrixProduct;
    product.dtype = DType::kFloat32;
    product.work = work::Product{.m = rows, .n = 14336, .k = 4096, .transposed = Transposed::kSecond};
    return 1e6 * kernel_seconds(product, card, test::rates());
  };
  EXPECT_NEAR(microseconds(1, hopper_h200()), 62.1, 0.1 * 62.1);
  EXPECT_NEAR(microseconds(8, hopper_h200()), 119.4, 0.2 * 119.4);
  EXPECT_EQ(microseconds(8, hopper_h200()), microseconds(8, hopper_h100()));
}

// Each part has half of the card's threads: those of a token have nothing to do.
TEST(TokenKernels, ACacheThatGrowsByAStridedTokenIsCopiedByHalfOfTheBlocks) {
  test::TapeBench bench;
  const Tensor kept = bench.tape.empty({2, 4, 100, 8}, DType::kFloat32, aten::kEmpty);
  const Tensor fused = bench.tape.empty({2, 4, 1, 24}, DType::kFloat32, aten::kEmpty);
  const auto kind_of = [&](const Tensor& a, const Tensor& b) {
    const Tensor joined = cat(a, b, 2);
    return bench.tape.kernels.last()->kind;
  };
  const Tensor token = slice(fused, 3, 0, 8), turned = transpose(kept, 1, 2);
  EXPECT_EQ(kind_of(kept, token), KernelKind::kTurned);
  EXPECT_EQ(kind_of(kept, kept), KernelKind::kVectorized);
  EXPECT_EQ(kind_of(turned, turned), KernelKind::kStrided);
}

}  // namespace
}  // namespace memcalc
