// symbolic/ops: what matrix products, attention and views request, on shapes small enough to check by hand. The rest
// of the operators is in operators_test.cc.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "memcalc/symbolic/ops/attention.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/view.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

using test::TapeBench;

constexpr DType kFloat = DType::kFloat32;
constexpr DType kBfloat = DType::kBFloat16;

using Call = std::function<Tensor(TapeBench&)>;  // makes its inputs, then start()s

void check(const char* name, const Call& call, const std::string& forward, const std::string& backward,
           const DeviceSpec& device = test::h100()) {
  SCOPED_TRACE(name);
  TapeBench bench(device);
  bench.warm_up();
  const Tensor output = call(bench);
  EXPECT_EQ(bench.events(), forward);
  bench.backward(output);
  EXPECT_EQ(bench.events(), backward);
}

TEST(Products, Linear) {
  const auto layer = [](const Shape& shape, bool with_bias) {
    return [=](TapeBench& bench) {
      const Tensor x = bench.input(shape), weight = bench.input({32, 16});
      const Tensor bias = with_bias ? bench.input({32}) : Tensor();
      bench.start();
      return linear(x, weight, bias);
    };
  };
  // 8 rows, 16 -> 32: out 8*32*4 = 1024, dX 8*16*4 = 512, dW 32*16*4 = 2048, db 32*4 = 128.
  // AddmmBackward0: dX, dW, db; MmBackward0: dW first.
  check("with bias", layer({8, 16}, true), "+1024 addmm", "+512 mm; +2048 mm; +128 sum");
  check("without", layer({8, 16}, false), "+1024 mm", "+2048 mm; +512 mm");
  check("three dimensions", layer({2, 4, 16}, true), "+1024 addmm", "+512 mm; +2048 mm; +128 sum");
  check("three dimensions, without", layer({2, 4, 16}, false), "+1024 mm", "+2048 mm; +512 mm");
}

TEST(Products, OnlyTheGradientsThatAreNeeded) {
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input({8, 16}, kFloat, false), weight = bench.input({32, 16});
  const Tensor y = linear(x, weight, {});
  bench.backward(y);
  EXPECT_EQ(bench.events(), "+2048 mm");
}

TEST(Products, Conv1d) {  // bias + x @ w, w [in, out]
  check(
      "addmm",
      [](TapeBench& bench) {
        const Tensor x = bench.input({8, 16}), weight = bench.input({16, 32}), bias = bench.input({32});
        bench.start();
        return addmm(bias, x, weight);
      },
      "+1024 addmm", "+512 mm; +2048 mm; +128 sum");
}

TEST(Products, Matmul) {
  // [6, 4, 8] x [6, 8, 4]: out 6*4*4*4 = 384; each gradient 6*4*8*4 = 768
  check(
      "batched",
      [](TapeBench& bench) {
        const Tensor a = bench.input({6, 4, 8}), b = bench.input({6, 8, 4});
        bench.start();
        return matmul(a, b);
      },
      "+384 bmm", "+768 bmm; +768 bmm");
  // [2, 4, 3, 8] transposed to heads [2, 3, 4, 8]: batch and heads do not merge, so both operands are copied,
  // 2*3*4*8*4 = 768; the copies are saved, their gradients are views of what bmm gives
  check(
      "scores of heads",
      [](TapeBench& bench) {
        const Tensor q = bench.input({2, 4, 3, 8}), k = bench.input({2, 4, 3, 8});
        const Tensor heads = transpose(q, 1, 2), turned = transpose(transpose(k, 1, 2), 2, 3);
        bench.start();
        return matmul(heads, turned);
      },
      "+768 clone; +768 clone; +384 bmm", "+768 bmm; +768 bmm; -768; -768");
}

TEST(Products, Views) {  // [2, 4, 16] float32: 512 bytes
  const auto of = [](const std::function<Tensor(const Tensor&)>& function) {
    return [=](TapeBench& bench) {
      const Tensor x = bench.input({2, 4, 16});
      bench.start();
      return function(x);
    };
  };
  check("view", of([](const Tensor& x) { return view(x, {8, -1}); }), "", "");
  check("transpose", of([](const Tensor& x) { return transpose(x, 1, 2); }), "", "");
  check("unsqueeze", of([](const Tensor& x) { return unsqueeze(x, 1); }), "", "");
  check("expand", of([](const Tensor& x) { return expand(unsqueeze(x, 1), {-1, 3, -1, -1}); }), "", "+512 sum");
  check("reshape that copies", of([](const Tensor& x) {
          return reshape(transpose(x, 1, 2), {32, 4});
        }),
        "+512 clone", "");
  check("contiguous of a row-major tensor", of([](const Tensor& x) { return contiguous(x); }), "", "");
  check("clone", of([](const Tensor& x) { return clone(x); }), "+512 clone", "");
  // the backward of a part is a whole tensor of zeros with the part in it
  check("slice", of([](const Tensor& x) { return slice(x, 2, 8, 8); }), "", "+512 slice_backward");
  check("slice of everything", of([](const Tensor& x) { return slice(x, 2, 0, 16); }), "", "");
  check("select", of([](const Tensor& x) { return select(x, 1); }), "", "+512 select_backward");
  check("cat_with_empty", of([](const Tensor& x) { return cat_with_empty(x, kFloat); }), "+512 cat", "");
  // two slices of the gradient, added for x
  check("cat", of([](const Tensor& x) { return cat(x, x, -1); }), "+1024 cat", "+512 add");
}

TEST(Products, SplitIsOneNode) {
  TapeBench bench;
  const Tensor x = bench.input({2, 4, 48});  // 1536 bytes
  std::vector<Tensor> parts = split(x, 2, 3);
  bench.start();
  const Tensor rejoined = cat(parts[0], parts[1], 2);  // 1024 bytes
  EXPECT_EQ(bench.events(), "+1024 cat");
  EXPECT_EQ(parts[2].shape(), (Shape{2, 4, 16}));
  bench.backward(rejoined);
  EXPECT_EQ(bench.events(), "+512 zeros; +1536 cat; -512")
      << "zeros stand for the part that nobody used (split_with_sizes_backward)";
}

TEST(Products, TheGradientOfAPartIsSummedToItWhereItCameBroadcast) {
  TapeBench bench;
  const Tensor bias = bench.input({24}, DType::kBFloat16);
  const Tensor x = bench.input({8, 4}, DType::kFloat32);
  const std::array<std::int64_t, 3> sizes = {4, 4, 16};
  std::vector<Tensor> parts = split(bias, 0, sizes);
  const Tensor sum = add(x, parts[1]);
  bench.start();
  bench.backward(sum);
  EXPECT_EQ(bench.events(), "+16 sum; +8 _to_copy; -16; +8 zeros; +32 zeros; +48 cat; -8; -32; -8")
      << "validate_outputs (engine.cpp) reduces to the part's shape, then converts";
}

TEST(Products, UnviewableShapesAreABugOfOurs) {
  TapeBench bench;
  const Tensor x = bench.input({4, 6});
  EXPECT_THROW((void)view(t(x), {24}), Error);
  EXPECT_THROW((void)view(x, {5, 5}), Error);
}

// --- attention: B = 2, H = 4 heads, S = 64, D = 64, so q has 2*4*64*64 = 32768 elements

Call attention(DType dtype, std::int64_t key_heads, bool masked, SdpaOptions options) {
  return [=](TapeBench& bench) {
    const auto heads = [&](std::int64_t count) { return bench.input({2, count, 64, 64}, dtype); };
    const Tensor q = heads(4), k = heads(key_heads), v = heads(key_heads);
    const Tensor mask = masked ? bench.input({2, 1, 64, 64}, DType::kBool, false) : Tensor();
    bench.start();
    return scaled_dot_product_attention(q, k, v, mask, options);
  };
}

TEST(Attention, Cudnn) {
  const std::string op = " _cudnn_attention_forward", back = " _cudnn_attention_backward";
  // seed, offset, out 65536, log-sum-exp 4*2*4*64 = 2048, workspace 256
  const std::string forward = "+8" + op + "; +8" + op + "; +65536" + op + "; +2048" + op + "; +256" + op + "; -256";
  // workspace: 4 * 2*4*64 * (64 + 1) + 256 = 133376; then log-sum-exp, offset, seed die
  check("16 bits", attention(kBfloat, 4, false, {.dropout = 0.1, .causal = true}), forward,
        "+65536" + back + "; +65536" + back + "; +65536" + back + "; +133376" + back + "; -133376; -2048; -8; -8");
  // 1 key head: dk, dv 16384; + dK and dV of all heads: 2 * 2*4*64 * (64 + 64) = 131072 -> 264448
  check("grouped", attention(kBfloat, 1, false, {.causal = true}), forward,
        "+65536" + back + "; +16384" + back + "; +16384" + back + "; +264448" + back + "; -264448; -2048; -8; -8");
  // the bool mask as 0 and -inf in 16 bits: 2*64*64*2 = 16384, saved
  const std::string convert = " convert_boolean_attn_mask";
  check("masked", attention(kBfloat, 4, true, {}),
        "+2" + convert + "; +2" + convert + "; +16384" + convert + "; -2; -2; " + forward,
        "+65536" + back + "; +65536" + back + "; +65536" + back + "; +133376" + back +
            "; -133376; -16384; -2048; -8; -8");
}

TEST(Attention, WithoutAGradientThereIsNoLogSumExp) {
  TapeBench bench;
  const Tensor q = bench.input({2, 4, 64, 64}, kBfloat, false);
  bench.start();
  const Tensor out = scaled_dot_product_attention(q, q, q, {}, {});
  EXPECT_EQ(bench.requests(), (std::vector<Bytes>{8, 8, 65536, 256, -256, -8, -8}));
}

TEST(Attention, MemoryEfficientInFloat32) {
  const std::string op = " _efficient_attention_forward", back = " _efficient_attention_backward";
  // out 131072, log-sum-exp of queries rounded up to 32: 4*2*4*64 = 2048. Back: dq dk dv, grad * out, its sum, the
  // sum transposed; workspace 2*4 heads * 1 tile of 64 x 64: 4*64*64 + 16 = 16400 -> 131200
  check("no mask", attention(kFloat, 4, false, {}), "+131072" + op + "; +2048" + op,
        "+131072" + back + "; +131072" + back + "; +131072" + back + "; +131072" + back + "; +2048" + back + "; +2048" +
            back + "; -2048; -131072; +131200" + back + "; -2048; -131200; -2048");
}

// _efficient_attention_backward copies a gradient that is not [B, S, H, D] in memory (nn.MultiheadAttention).
TEST(Attention, MemoryEfficientCopiesAGradientOfAnotherOrder) {
  TapeBench bench;
  bench.warm_up();
  const Tensor q = bench.input({2, 4, 64, 64}), gradient = bench.input({2, 4, 64, 64}, kFloat, false);
  const Tensor out = scaled_dot_product_attention(q, q, q, {}, {});
  bench.start();
  bench.backward(out, gradient);
  EXPECT_EQ(bench.events().substr(0, 15), "+131072 clone; ");
}

TEST(Attention, MathWhereHeadsAreGroupedInFloat32) {
  // q*s; k and v repeated to all heads; k*s; scores 4*2*4*64*64 = 131072; safe softmax with its masks (a byte an
  // element 32768, a byte a row 512, the scalar); out. At the end q*s and the repeated k, which nobody saved, die.
  check("grouped", attention(kFloat, 1, false, {}),
        "+131072 mul; +131072 clone; +131072 clone; +131072 mul; +131072 bmm; +131072 _softmax; +32768 isneginf; "
        "+512 all; +4 scalar_tensor; -4; -512; -32768; -131072; +131072 bmm; -131072",
        // of the repeated v and of the weights; v dies. Softmax: its gradient, grad * result; the weights die
        "+131072 bmm; +131072 bmm; -131072; +131072 _softmax_backward_data; +131072 _softmax_backward_data; -131072; "
        "-131072; -131072; "
        // of k*s and q*s, which die with the scores' gradient; of the repeated k; k and v summed over the 4 heads; of q
        "+131072 bmm; +131072 bmm; -131072; -131072; -131072; +131072 mul; -131072; +32768 sum; -131072; +32768 sum; "
        "-131072; +131072 mul; -131072");
}

TEST(Attention, FlashOnACardWithoutCudnnAttention) {
  DeviceSpec device = test::h100();
  device.compute_capability_major = 8;
  const std::string op = " _flash_attention_forward", back = " _flash_attention_backward";
  // out, log-sum-exp, generator state 16 and 8. 8 blocks of queries on 264 slots, but 64 keys are one block of 256:
  // no split. Back: dq dk dv; 4*2*4*128 = 4096 (queries rounded up to 128); dq in float32 4*2*128*4*64 = 262144
  // The gradient is [B, H, S, D] in memory, of which _flash_attention_backward makes a copy in [B, S, H, D].
  check("flash", attention(kBfloat, 4, false, {.causal = true}),
        "+65536" + op + "; +2048" + op + "; +16" + op + "; +8" + op,
        "+65536 clone; +65536" + back + "; +65536" + back + "; +65536" + back + "; +4096" + back + "; +262144" + back +
            "; -262144; -4096; -65536; -2048; -16; -8",
        device);
}

TEST(Attention, TheBackendByCard) {
  const struct {
    int major, minor;
    DType dtype;
    std::int64_t key_heads, dim;
    bool masked;
    SdpaBackend backend;
  } cases[] = {
      {9, 0, kBfloat, 4, 64, false, SdpaBackend::kCudnn},
      {9, 0, kBfloat, 1, 64, true, SdpaBackend::kCudnn},
      {9, 0, kFloat, 4, 64, false, SdpaBackend::kEfficient},
      {9, 0, kFloat, 4, 6, false, SdpaBackend::kMath},  // 16 bytes
      {9, 0, kFloat, 1, 64, false, SdpaBackend::kMath},
      {10, 0, kBfloat, 4, 128, false, SdpaBackend::kCudnn},
      {10, 0, kBfloat, 4, 256, false, SdpaBackend::kFlash},
      {8, 0, kBfloat, 4, 64, false, SdpaBackend::kFlash},
      {8, 9, kBfloat, 1, 64, false, SdpaBackend::kFlash},
      {8, 0, kBfloat, 4, 64, true, SdpaBackend::kEfficient},
      {8, 0, kBfloat, 1, 64, true, SdpaBackend::kMath},
      {7, 5, DType::kFloat16, 4, 64, false, SdpaBackend::kEfficient},
      {7, 5, kBfloat, 4, 64, false, SdpaBackend::kMath},
  };
  for (const auto& each : cases) {
    DeviceSpec device = test::h100();
    device.compute_capability_major = each.major;
    device.compute_capability_minor = each.minor;
    TapeBench bench(device);
    const Tensor q = bench.input({2, 4, 64, each.dim}, each.dtype);
    const Tensor k = bench.input({2, each.key_heads, 64, each.dim}, each.dtype);
    const Tensor mask = each.masked ? bench.input({2, 1, 64, 64}, each.dtype, false) : Tensor();
    const SdpaBackend chosen = choose_sdpa_backend(q, k, k, mask, {.grouped_heads = each.key_heads != 4});
    EXPECT_EQ(name_of(chosen), name_of(each.backend)) << each.major << '.' << each.minor << ' ' << name_of(each.dtype);
  }
}

TEST(Attention, OnAmdCardsIsFlashOfAnyHeadsUpTo512) {
  DeviceSpec device = test::h100();
  device.compute_capability_major = 0;
  device.gcn_architecture = "gfx942";
  const struct {
    DType dtype;
    std::int64_t key_heads, dim;
    bool masked;
    SdpaBackend backend;
  } cases[] = {{kBfloat, 4, 64, false, SdpaBackend::kFlash}, {kBfloat, 1, 512, false, SdpaBackend::kFlash},
               {kBfloat, 4, 520, false, SdpaBackend::kMath}, {kBfloat, 4, 64, true, SdpaBackend::kEfficient},
               {kBfloat, 1, 64, true, SdpaBackend::kMath},   {kFloat, 4, 64, false, SdpaBackend::kEfficient},
               {kFloat, 4, 512, false, SdpaBackend::kMath}};
  for (const auto& each : cases) {
    TapeBench bench(device);
    const Tensor q = bench.input({2, 4, 64, each.dim}, each.dtype);
    const Tensor k = bench.input({2, each.key_heads, 64, each.dim}, each.dtype);
    const Tensor mask = each.masked ? bench.input({2, 1, 64, 64}, each.dtype, false) : Tensor();
    const SdpaBackend chosen = choose_sdpa_backend(q, k, k, mask, {.grouped_heads = each.key_heads != 4});
    EXPECT_EQ(name_of(chosen), name_of(each.backend)) << each.dim << ' ' << name_of(each.dtype);
  }
}

}  // namespace
}  // namespace memcalc
