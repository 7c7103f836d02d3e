// What a program's in-place operators do to the values that it holds: autograd makes views of what was changed anew.
// Numbers of torch 2.11: its host code run on a CUDA runtime that computes nothing.
#include "memcalc/symbolic/ops/recorded_call.h"

#include <gtest/gtest.h>

#include <array>
#include <string_view>
#include <vector>

#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/view.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

using test::TapeBench;
using Kind = BoundArgument::Kind;
using Requests = std::vector<Bytes>;

constexpr Operator kZeros{"aten::zeros"};

BoundArgument value(int place) { return {.kind = Kind::kValue, .integer = place}; }
BoundArgument integer(std::int64_t number) { return {.kind = Kind::kInteger, .integer = number}; }

std::vector<Tensor> run(TapeBench& bench, std::string_view name, const std::vector<BoundArgument>& slots,
                        std::span<Tensor> values) {
  RecordedCall call(bench.tape, name, slots, values, {});
  find_operator(name)->run(call);
  return std::move(call.results);
}

// z = zeros(8, 2, 16).transpose(0, 1); z[0] = b; z[1] = b; z * 1, where no name holds the zeros.
TEST(SetItem, OfAViewIsPartOfTheHistoryOfItsBase) {
  TapeBench bench;
  bench.warm_up();
  std::array<Tensor, 2> values;
  values[1] = bench.input({8, 16});
  bench.start();
  values[0] = transpose(bench.tape.empty({8, 2, 16}, DType::kFloat32, kZeros), 0, 1);
  EXPECT_TRUE(run(bench, "__setitem__", {value(0), integer(0), value(1)}, values).empty());
  EXPECT_TRUE(values[0].requires_grad());
  (void)run(bench, "__setitem__", {value(0), integer(1), value(1)}, values);
  const Tensor result = multiply_scalar(values[0]);
  values[0].reset();
  EXPECT_EQ(bench.requests(), (Requests{1024, 1024, -1024}));
  bench.backward(result);
  EXPECT_EQ(bench.requests(),
            (Requests{1024, 1024, -1024, 1024, 512, 512, -512, -1024, 1024, 512, -1024, -1024, -512}));
}

// h = zeros(8, 2, 16); z = h.transpose(0, 1); u = h[1]; z[0] = b; u * 1: u's gradient comes by the storage of h.
TEST(SetItem, MakesEveryViewOfTheBaseAnew) {
  TapeBench bench;
  bench.warm_up();
  std::array<Tensor, 4> values;
  values[3] = bench.input({8, 16});
  bench.start();
  values[0] = bench.tape.empty({8, 2, 16}, DType::kFloat32, kZeros);
  values[1] = transpose(values[0], 0, 1);
  values[2] = select(values[0], 0);
  (void)run(bench, "__setitem__", {value(1), integer(0), value(3)}, values);
  const Tensor result = multiply_scalar(values[2]);
  for (int i = 0; i < 3; ++i) values[static_cast<std::size_t>(i)].reset();
  EXPECT_EQ(bench.requests(), (Requests{1024, 128, -1024}));
  bench.backward(result);
  EXPECT_EQ(bench.requests(), (Requests{128, 1024, -128, 1024, 512, -1024, -1024}));
}

// h = a * 2; h[mask, :] = b with five places: Qwen3-VL's deepstack. Both gradients make places of the mask anew.
TEST(SetItem, ByAMaskIsPartOfTheHistory) {  // events as derivatives.yaml and TensorAdvancedIndexing.cpp order them
  TapeBench bench;
  bench.warm_up();
  std::array<Tensor, 3> values{multiply_scalar(bench.input({4, 8, 16})), bench.input({4, 8}, DType::kBool, false),
                               bench.input({5, 16})};
  bench.start();
  const BoundArgument whole{.kind = Kind::kSlice, .items = {{}, {}, {}}};
  const BoundArgument index{.kind = Kind::kList, .items = {value(1), whole}};
  EXPECT_TRUE(run(bench, "__setitem__", {value(0), index, value(2)}, values).empty());
  EXPECT_EQ(bench.requests(), (Requests{4, 1, -1, 80, 1023, -1023, -4, -80}));  // the places; nothing is copied
  const Tensor result = multiply_scalar(values[0]);
  bench.start();
  bench.backward(result);
  const Requests of_the_changed = {320, 2048, 4, 1, -1, 80, 1023, -1023, -4, -80, -320};  // zeros, a clone, places
  const Requests of_the_source = {4, 1, -1, 80, 1023, -1023, -4, 320, -80};
  Requests expected = {2048};  // of the last product
  expected.insert(expected.end(), of_the_changed.begin(), of_the_changed.end());
  expected.insert(expected.end(), of_the_source.begin(), of_the_source.end());
  expected.insert(expected.end(), {-2048, 2048, -2048});  // of the first product
  EXPECT_EQ(bench.requests(), expected);
}

TEST(SetItem, IsOpaqueAtPlacesOfADifferentiatedView) {  // not modelled: its history is, its temporaries are not
  TapeBench bench;
  std::array<Tensor, 3> values{transpose(multiply_scalar(bench.input({8, 4, 16})), 0, 1),
                               bench.input({4, 8}, DType::kBool, false), bench.input({5, 16})};
  bench.start();
  EXPECT_TRUE(run(bench, "__setitem__", {value(0), value(1), value(2)}, values).empty());
  EXPECT_TRUE(bench.requests().empty());
  EXPECT_TRUE(values[0].requires_grad());
}

// SmolVLM with float32 weights under autocast, measured: "Index put requires the source and destination dtypes match".
TEST(SetItem, ByAMaskTakesItsOwnTypeAlone) {
  TapeBench bench;
  std::array<Tensor, 3> values{multiply_scalar(bench.input({4, 8, 16})), bench.input({4, 8}, DType::kBool, false),
                               bench.input({5, 16}, DType::kBFloat16)};
  EXPECT_THROW((void)run(bench, "__setitem__", {value(0), value(1), value(2)}, values), Error);
}

// x.unfold(1, 4, 2): windows that see one element twice.
TEST(Unfold, OfATensorIsAView) {
  TapeBench bench;
  bench.warm_up();
  std::array<Tensor, 1> values{bench.input({8, 16})};
  bench.start();
  const std::vector<Tensor> results =
      run(bench, "Tensor.unfold", {value(0), integer(1), integer(4), integer(2)}, values);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].shape(), (Shape{8, 7, 4}));
  EXPECT_EQ(results[0].strides(), (Shape{16, 2, 1}));
  EXPECT_TRUE(bench.requests().empty());
  bench.backward(results[0]);
  EXPECT_EQ(bench.requests(), (Requests{512, 128, -128}));  // zeros of the whole; the 16 places, counted
}

// torch.bucketize of 16-bit numbers by float32 bounds, as SmolVLM's positions are made.
TEST(Bucketize, MakesItsNumbersTheBoundsType) {
  TapeBench bench;
  std::array<Tensor, 2> values{bench.input({2, 32}, DType::kBFloat16, false),
                               bench.input({31}, DType::kFloat32, false)};
  bench.start();
  const std::vector<Tensor> results = run(bench, "bucketize", {value(0), value(1)}, values);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].dtype(), DType::kInt64);
  EXPECT_EQ(bench.requests(), (Requests{512, 256, -256}));
}

// h = a * 2; z = h.view(16, 8).t(); z.mul_(2); z is what h has become.
TEST(MultiplyInPlace, OfAViewGoesThroughItsBase) {
  TapeBench bench;
  bench.warm_up();
  std::array<Tensor, 1> values;
  const Tensor a = bench.input({8, 16});
  bench.start();
  values[0] = t(view(multiply_scalar(a), {16, 8}));
  const std::vector<Tensor> results = run(bench, "mul_", {value(0), {.kind = Kind::kNumber, .number = 2}}, values);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].impl(), values[0].impl());
  EXPECT_EQ(results[0].shape(), (Shape{8, 16}));
}

// x.where(condition, y) is torch.where(condition, x, y).
TEST(Where, OfATensorTakesItsConditionSecond) {
  TapeBench bench;
  bench.warm_up();
  std::array<Tensor, 3> values{bench.input({8, 16}, DType::kBool, false), bench.input({8, 16}), bench.input({8, 16})};
  bench.start();
  const std::vector<Tensor> results = run(bench, "where", {value(1), value(0), value(2)}, values);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].dtype(), DType::kFloat32);
  EXPECT_EQ(bench.requests(), (Requests{512}));
  bench.backward(results[0]);
  EXPECT_EQ(bench.requests(), (Requests{4, 512, -4, 4, 512, -4}));
}

TEST(Data, OfATensorHasNoHistory) {
  TapeBench bench;
  std::array<Tensor, 1> values{multiply_scalar(bench.input({8, 16}))};
  bench.start();
  const std::vector<Tensor> results = run(bench, "data", {value(0)}, values);
  EXPECT_FALSE(results[0].requires_grad());
  EXPECT_EQ(results[0].block(), values[0].block());
  EXPECT_TRUE(bench.requests().empty());
}

// torch.arange(a, b, -1) of tensors: the host reads them, so that its size is what was recorded.
TEST(Arange, OfTensorsIsAsLargeAsItWasRecorded) {
  TapeBench bench;
  std::array<Tensor, 2> values{bench.input({}, DType::kInt64, false), bench.input({}, DType::kInt64, false)};
  bench.start();
  const std::vector<BoundArgument> slots = {value(0), value(1), integer(-1), {}, {.kind = Kind::kText, .text = "cuda"}};
  const GivenResult given{{256}, DType::kInt64};
  RecordedCall call(bench.tape, "arange", slots, values, {}, {&given, 1});
  find_operator("arange")->run(call);
  EXPECT_EQ(bench.requests(), (Requests{2048}));
}

TEST(RmsNorm, NeedsNoWeight) {
  TapeBench bench;
  bench.warm_up();
  std::array<Tensor, 1> values{bench.input({8, 16}, DType::kBFloat16)};
  bench.start();
  BoundArgument shape{.kind = Kind::kList};
  shape.items = {integer(16)};
  const std::vector<Tensor> results = run(bench, "rms_norm", {value(0), shape}, values);
  EXPECT_EQ(bench.requests(), (Requests{256, 32}));  // the result, a statistic of each row
  bench.backward(results[0]);
  EXPECT_EQ(bench.requests(), (Requests{256, -32}));
}

}  // namespace
}  // namespace memcalc
