// symbolic/ops: what each operator requests, forward and backward, on shapes small enough to check by hand.
// (measured/operator_requests_test.cc compares thousands of sizes with an H100; products_test.cc has the matrix
// products, attention and views.) Bytes = elements * 4 in float32, * 2 in 16 bits.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/embedding.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

using test::TapeBench;

constexpr DType kFloat = DType::kFloat32;
constexpr DType kBfloat = DType::kBFloat16;
constexpr DType kHalf = DType::kFloat16;

struct OperatorCase {
  const char* name;
  std::function<Tensor(TapeBench&)> call;  // makes its inputs, then start()s
  const char* forward;
  const char* backward;  // "": it requests nothing
};

void check(const OperatorCase& each) {
  SCOPED_TRACE(each.name);
  TapeBench bench;
  bench.warm_up();
  const Tensor output = each.call(bench);
  EXPECT_EQ(bench.events(), each.forward);
  if (!output.requires_grad()) {
    EXPECT_EQ(std::string(each.backward), "no gradient");
    return;
  }
  bench.backward(output);
  EXPECT_EQ(bench.events(), each.backward);
}

/// A function of one input [16, 16].
std::function<Tensor(TapeBench&)> of(Tensor (*function)(Arg), DType dtype = kFloat) {
  return [=](TapeBench& bench) {
    const Tensor x = bench.input({16, 16}, dtype);
    bench.start();
    return function(x);
  };
}

std::function<Tensor(TapeBench&)> of(Tensor (*function)(Arg, Arg), const Shape& a, const Shape& b) {
  return [=](TapeBench& bench) {
    const Tensor x = bench.input(a), y = bench.input(b);
    bench.start();
    return function(x, y);
  };
}

TEST(Operators, ElementwiseOfOneTensor) {  // 16 * 16 * 4 = 1024; 512 in 16 bits
  const OperatorCase cases[] = {
      {"add_scalar", of(add_scalar), "+1024 add", ""},  // the gradient passes through
      {"multiply_scalar", of(multiply_scalar), "+1024 mul", "+1024 mul"},
      {"divide_scalar", of(divide_scalar), "+1024 div", "+1024 div"},
      {"negate", of(negate), "+1024 neg", "+1024 neg"},
      {"relu", of(relu), "+1024 relu", "+1024 threshold_backward"},
      {"gelu", of(gelu), "+1024 gelu", "+1024 gelu_backward"},
      {"gelu, 16 bits", of(gelu, kBfloat), "+512 gelu", "+512 gelu_backward"},
      {"silu", of(silu), "+1024 silu", "+1024 silu_backward"},
      {"tanh", of(tanh), "+1024 tanh", "+1024 tanh_backward"},
      // x ** (n - 1), times n, times the gradient; the first two die last made first
      {"power", of(power), "+1024 pow", "+1024 pow; +1024 mul; +1024 mul; -1024; -1024"},
      // result ** 3, -0.5 * gradient, their product
      {"reciprocal_sqrt", of(reciprocal_sqrt), "+1024 rsqrt", "+1024 pow; +1024 mul; +1024 mul; -1024; -1024"},
      {"sum_all", of(sum_all), "+4 sum", "no gradient"},
  };
  for (const OperatorCase& each : cases) check(each);
}

TEST(Operators, Positions) {
  TapeBench bench;
  const Tensor x = bench.input({16, 16}, kFloat, false);
  bench.start();
  const Tensor c = cosine(x), s = sine(x);
  EXPECT_EQ(bench.events(), "+1024 cos; +1024 sin");
}

TEST(Operators, ElementwiseOfTwoTensors) {
  const OperatorCase cases[] = {
      {"add", of(add, {16, 16}, {16, 16}), "+1024 add", ""},
      // d b first: grad * a, then grad * b
      {"multiply", of(multiply, {16, 16}, {16, 16}), "+1024 mul", "+1024 mul; +1024 mul"},
      {"add, a row", of(add, {16, 16}, {16}), "+1024 add", "+64 sum"},
      {"add, a column", of(add, {16, 1}, {16, 16}), "+1024 add", "+64 sum"},
      // the row's product is made whole, summed once both are there, and dies
      {"multiply, a row", of(multiply, {16}, {16, 16}), "+1024 mul", "+1024 mul; +1024 mul; +64 sum; -1024"},
      {"multiply, outer", of(multiply, {16, 1}, {1, 16}), "+1024 mul",
       "+1024 mul; +1024 mul; +64 sum; -1024; +64 sum; -1024"},
  };
  for (const OperatorCase& each : cases) check(each);
}

TEST(Operators, Division) {  // by a tensor that needs no gradient: the loss by the number of items
  check({"divide",
         [](TapeBench& bench) {
           const Tensor a = bench.input({}), b = bench.input({}, DType::kInt64, false);
           bench.start();
           return divide(a, b);
         },
         "+4 div", "+4 div"});
}

TEST(Operators, InPlace) {
  check({"multiply_in_place",
         [](TapeBench& bench) {
           const Tensor x = negate(bench.input({16, 16}));
           bench.start();
           return multiply_in_place(x);
         },
         "", "+1024 mul; +1024 neg; -1024"});  // neg's own gradient follows, then the scaled one dies
}

TEST(Operators, TypePromotion) {
  TapeBench bench;
  const auto type_of = [&](DType a, DType b) {
    return add(bench.input({2}, a, false), bench.input({2}, b, false)).dtype();
  };
  EXPECT_EQ(type_of(kBfloat, kBfloat), kBfloat);
  EXPECT_EQ(type_of(kBfloat, kFloat), kFloat);
  EXPECT_EQ(type_of(kBfloat, kHalf), kFloat);
  EXPECT_EQ(type_of(kBfloat, DType::kInt64), kBfloat);
  EXPECT_EQ(type_of(DType::kInt32, DType::kInt64), DType::kInt64);
}

TEST(Operators, Casts) {
  const auto cast = [](DType from, DType to) {
    return [=](TapeBench& bench) {
      const Tensor x = bench.input({16, 16}, from);
      bench.start();
      return to_dtype(x, to);
    };
  };
  check({"to 16 bits", cast(kFloat, kBfloat), "+512 _to_copy", "+1024 _to_copy"});
  check({"to float32", cast(kHalf, kFloat), "+1024 _to_copy", "+512 _to_copy"});
  check({"to its own type", cast(kFloat, kFloat), "", ""});
}

TEST(Operators, Dropout) {
  const auto dropped = [](double probability) {
    return [=](TapeBench& bench) {
      const Tensor x = bench.input({16, 16});
      bench.start();
      return dropout(x, probability);
    };
  };
  // a byte an element for the mask, which is saved
  check({"dropout", dropped(0.1), "+256 native_dropout; +1024 native_dropout", "+1024 native_dropout_backward; -256"});
  check({"dropout of probability 0", dropped(0), "", ""});
}

TEST(Operators, Norms) {
  const auto norm = [](const Shape& shape, DType dtype) {
    return [=](TapeBench& bench) {
      const Tensor x = bench.input(shape, dtype);
      const Tensor weight = bench.input({shape[-1]}, dtype), bias = bench.input({shape[-1]}, dtype);
      bench.start();
      return layer_norm(x, weight, bias);
    };
  };
  // 8 rows of 64: X = 8*64*4 = 2048, mean and 1/std 8*4 = 32 each; dx, dweight and dbias 64*4 = 256
  check({"layer_norm", norm({2, 4, 64}, kFloat),
         "+2048 native_layer_norm; +32 native_layer_norm; +32 native_layer_norm",
         "+2048 native_layer_norm_backward; +256 native_layer_norm_backward; +256 native_layer_norm_backward; "
         "-32; -32"});
  // the statistics stay float32
  check({"layer_norm, 16 bits", norm({8, 64}, kBfloat),
         "+1024 native_layer_norm; +32 native_layer_norm; +32 native_layer_norm",
         "+1024 native_layer_norm_backward; +128 native_layer_norm_backward; +128 native_layer_norm_backward; "
         "-32; -32"});
  // Autocast makes float32 of bias, weight and input, 64*4 = 256 and 2048 bytes, and backward keeps them; it casts
  // their gradients back.
  check({"layer_norm, 16 bits under autocast",
         [](TapeBench& bench) {
           const Tensor x = bench.input({8, 64}, kBfloat), weight = bench.input({64}, kBfloat);
           const Tensor bias = bench.input({64}, kBfloat);
           bench.start();
           const Autocasting region(bench.tape.modes.autocast, kBfloat);
           return layer_norm(x, weight, bias);
         },
         "+256 _to_copy; +256 _to_copy; +2048 _to_copy; +2048 native_layer_norm; +32 native_layer_norm; "
         "+32 native_layer_norm",
         "+2048 native_layer_norm_backward; +256 native_layer_norm_backward; +256 native_layer_norm_backward; "
         "-256; -2048; -256; -32; -32; +1024 _to_copy; -2048; +128 _to_copy; -256; +128 _to_copy; -256"});
  // 65,568 rows of 32 > 65,536: min(32768 / 1, ceil(65568 / 32)) = 2049 partial rows of 32*4 bytes = 262272 each
  // for weight and bias, each summed: [2049, 32] -> [1, 32]
  TapeBench bench;
  const Tensor y = norm({65568, 32}, kFloat)(bench);
  bench.backward(y);
  EXPECT_EQ(bench.events().substr(0, bench.events().find("; +128 sum")),
            "+8392704 native_layer_norm_backward; +128 native_layer_norm_backward; +128 native_layer_norm_backward; "
            "+262272 native_layer_norm_backward; +262272 native_layer_norm_backward");
}

TEST(Operators, Softmax) {  // [8, 32]: 1024 bytes in float32, 512 in 16 bits
  const auto rows = [](DType dtype, const std::function<Tensor(const Tensor&)>& function) {
    return [=](TapeBench& bench) {
      const Tensor x = bench.input({8, 32}, dtype);
      bench.start();
      return function(x);
    };
  };
  // the kernel wants grad * result
  check({"softmax", rows(kFloat, [](const Tensor& x) { return softmax(x); }), "+1024 _softmax",
         "+1024 _softmax_backward_data; +1024 _softmax_backward_data; -1024"});
  check({"log_softmax", rows(kFloat, [](const Tensor& x) { return log_softmax(x); }), "+1024 _log_softmax",
         "+1024 _log_softmax_backward_data"});
  // bfloat16 is cast first; float16 is converted by the kernel, whose gradient is float16 again
  check({"softmax in float32 of bfloat16", rows(kBfloat, [](const Tensor& x) { return softmax(x, kFloat); }),
         "+1024 _to_copy; +1024 _softmax; -1024",
         "+1024 _softmax_backward_data; +1024 _softmax_backward_data; -1024; +512 _to_copy; -1024"});
  check({"softmax in float32 of float16", rows(kHalf, [](const Tensor& x) { return softmax(x, kFloat); }),
         "+1024 _softmax", "+512 _softmax_backward_data; +1024 _softmax_backward_data; -1024"});
  // isneginf a byte an element, all a byte a row, the scalar 0: SDPA's math backend
  check({"safe_softmax", rows(kFloat, [](const Tensor& x) { return safe_softmax(x); }),
         "+1024 _softmax; +256 isneginf; +8 all; +4 scalar_tensor; -4; -8; -256",
         "+1024 _softmax_backward_data; +1024 _softmax_backward_data; -1024"});
}

TEST(Operators, CrossEntropy) {
  const auto loss = [](DType dtype) {
    return [=](TapeBench& bench) {
      const Tensor logits = bench.input({8, 32}, dtype);
      const Tensor targets = bench.input({8}, DType::kInt64, false);
      bench.start();
      return cross_entropy(logits, targets);
    };
  };
  // log-probabilities (saved), the loss, the total weight (saved); back: their gradient, the weight dies, the
  // logits' gradient, the first and the log-probabilities die
  check({"cross_entropy", loss(kFloat), "+1024 _log_softmax; +4 nll_loss_forward; +4 nll_loss_forward",
         "+1024 nll_loss_backward; -4; +1024 _log_softmax_backward_data; -1024; -1024"});
  check({"cross_entropy, 16 bits", loss(kBfloat), "+512 _log_softmax; +2 nll_loss_forward; +2 nll_loss_forward",
         "+512 nll_loss_backward; -2; +512 _log_softmax_backward_data; -512; -512"});
}

TEST(Operators, Embedding) {
  const auto table = [](std::int64_t rows, std::int64_t width, const Shape& indices) {
    return [=](TapeBench& bench) {
      const Tensor weight = bench.input({rows, width});
      const Tensor ids = bench.input(indices, DType::kInt64, false);
      bench.start();
      return embedding(weight, ids);
    };
  };
  // out 2*16*64*4 = 8192; the dense gradient 100*64*4 = 25600
  check({"up to 3072 indices", table(100, 64, {2, 16}), "+8192 index_select", "+25600 embedding_dense_backward"});
  // indices [1, 16] expanded to [2, 16] are flattened by a copy, 2*16*8 = 256, there and back
  check({"expanded indices",
         [](TapeBench& bench) {
           const Tensor weight = bench.input({100, 64});
           const Tensor ids = bench.input({1, 16}, DType::kInt64, false);
           const Tensor expanded = expand(ids, {2, 16});
           bench.start();
           return embedding(weight, expanded);
         },
         "+256 clone; +8192 index_select; -256", "+256 clone; +25600 embedding_dense_backward; -256"});
}

TEST(Operators, EmbeddingOfManyIndicesSorts) {
  // T = 4096 indices, V = 1000 rows of 64: M = min(T, V) = 1000, X = T / 10 + M = 1409
  // sort: 2 * 32768 + 16384 + 1024 * ceil(4096 / 4608) + 256 + 255 = 83455
  // unique: 16 * (32 + ceil(4096 / 4480)) = 528 -> 768, + 511 = 1279; scan: 16 * (32 + ceil(1000 / 896)) = 544 -> 1279
  // partial sums: 4 * 1409 * 64 = 360704 (grid = 1000 * 64 / 64 = 1000 >= 132 * 4: no atomics)
  TapeBench bench;
  const Tensor weight = bench.input({1000, 64});
  const Tensor ids = bench.input({4096}, DType::kInt64, false);
  const Tensor y = embedding(weight, ids);
  bench.backward(y);
  const std::vector<Bytes> expected = {
      32768,  32768,                                   // sorted, original positions
      32768,  83455,   -83455, -32768,                 // range, radix sort
      256000,                                          // the gradient: 1000 * 64 * 4
      32768,  8,       32768,  1279,   -1279, -32768,  // segment offsets, their count, unique by key
      8000,   8000,    1279,   -1279,                  // partial segments a segment, their starts, scan
      8,      11272,                                   // the count of partial segments, their offsets (8 * 1409)
      360704, -360704,                                 // partial sums
      -11272, -8,      -8000,  -8000,  -8,    -32768, -32768, -32768};
  EXPECT_EQ(bench.requests(), expected);
}

TEST(Operators, Reductions) {
  TapeBench bench;
  const Tensor x = bench.input({4, 8, 16}, kFloat, false);
  bench.start();
  EXPECT_EQ(sum_to(x, {8, 16}).shape(), (Shape{8, 16}));
  EXPECT_EQ(sum_to(x, {4, 1, 16}).shape(), (Shape{4, 1, 16}));
  EXPECT_EQ(mean_last(x).shape(), (Shape{4, 8, 1}));
  EXPECT_EQ(bench.events(), "+512 sum; -512; +256 sum; -256; +128 mean; -128");
  const Tensor mask = bench.input({4, 16}, DType::kBool, false);
  bench.start();
  EXPECT_EQ(no_grad::sum(mask).dtype(), DType::kInt64);
  EXPECT_EQ(bench.events(), "+8 sum; +512 _to_copy; -512; -8") << "converted to int64 first";
}

TEST(Operators, AReductionOverFewOutputsIsStaged) {
  // [2048, 1024] -> [1024] on 132 multiprocessors. A thread has 4 neighbouring outputs, so 1024 / 4 = 256 columns of
  // threads; of 512 / 4 = 128 threads a block gets 32 x 4: 4 of them share an output, 2048 / 4 = 512 inputs each. The
  // grid, 256 / 32 = 8 blocks, leaves most of the card idle: as many blocks an output as leave 16 inputs to a thread,
  // 512 / 16 = 32. Staging 4 bytes * 32 * 1024 outputs * (32 * 4 outputs a block) = 16 MiB, semaphores 4 * 8.
  TapeBench bench;
  const Tensor x = bench.input({2048, 1024}, kFloat, false);
  bench.start();
  const Tensor sum = sum_to(x, {1024});
  EXPECT_EQ(bench.events(), "+4096 sum; +16777216 sum; +32 sum; -32; -16777216");
}

}  // namespace
}  // namespace memcalc
