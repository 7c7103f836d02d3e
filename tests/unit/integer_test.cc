// symbolic/ops/integer.h: what operators on masks, positions and tokens request and free. Numbers of torch 2.11: its
// host code run on a CUDA runtime that computes nothing.
#include "memcalc/symbolic/ops/integer.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "support/tape_bench.h"

namespace memcalc {
namespace {

using test::TapeBench;
using Requests = std::vector<Bytes>;

constexpr DType kBool = DType::kBool;
constexpr DType kInt = DType::kInt64;

/// What an operator requests and frees (below 0), of one tensor that is there.
Requests requests_of(const Shape& shape, DType dtype, const std::function<Tensor(const Tensor&)>& call) {
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input(shape, dtype, false);
  bench.start();
  const Tensor result = call(x);
  return bench.requests();
}

TEST(Integer, ARunningSumOfBooleansIsOfACopyInInt64) {
  EXPECT_EQ(requests_of({2, 64}, kBool, [](const Tensor& x) { return no_grad::cumsum(x, -1); }),
            (Requests{1024, 1024, -1024}));
}

TEST(Integer, WhetherAllOfManyHoldIsStagedInBytes) {
  const Requests staged{1, 49, 4, -4, -49};
  EXPECT_EQ(requests_of({4, 100000}, kBool, [](const Tensor& x) { return no_grad::all(x); }), staged);
  EXPECT_EQ(requests_of({4, 100000}, kBool, [](const Tensor& x) { return no_grad::any(x); }), staged);
}

TEST(Integer, IsinComparesEveryElementWithEveryToken) {
  const auto is_token = [](const Tensor& ids) { return no_grad::isin(ids, no_grad::from_list(ids.tape(), {1})); };
  EXPECT_EQ(requests_of({2, 640}, kInt, is_token), (Requests{8, 1280, 1280, 1280, -1280, -1280, -8}));
}

// As an H100 was asked (torch 2.11, 2026-11-28): the 88 tokens that Whisper never writes.
TEST(Integer, IsinSortsForManyTokens) {
  const auto is_token = [](const Tensor& ids) { return no_grad::isin(ids, no_grad::from_list(ids.tape(), {88})); };
  constexpr Bytes kAll = 414920, kBoth = 415624;
  EXPECT_EQ(
      requests_of({51865}, kInt, is_token),
      (Requests{704,   51865,  kAll,  kAll,  kAll,   859135, -859135, -kAll,  kAll,   kAll,   1023,    -1023,  -kAll,
                kAll,  8,      1023,  -1023, -8,     -kAll,  -kAll,   704,    1,      -1,     704,     8,      1023,
                -1023, -8,     -704,  kBoth, -704,   -kAll,  kBoth,   kBoth,  kBoth,  860671, -860671, -kBoth, 51953,
                51952, -51952, 51953, 51865, -51865, -51953, -51953,  -kBoth, -kBoth, -kBoth, -kAll,   -704}));
}

TEST(Integer, AMaskIsReadAtEveryPlaceWithoutACopyOfPlacesThatAreAllThere) {
  const auto read = [](const Tensor& mask) {
    Tape& tape = mask.tape();
    const std::int64_t batch = mask.size(0), keys = mask.size(1);
    const Tensor rows = no_grad::view(no_grad::arange(tape, batch), {batch, 1, 1, 1});
    const Tensor columns = no_grad::view(no_grad::arange(tape, keys), {1, 1, 1, keys});
    return no_grad::index(mask, {{0, rows}, {1, columns}});
  };
  EXPECT_EQ(requests_of({3, 128}, kBool, read), (Requests{24, 1024, 3072, 3072, 384, -3072, -3072, -1024, -24}));
  EXPECT_EQ(requests_of({1, 128}, kBool, read),
            (Requests{8, 1024, 1024, 128, -1024, -1024, -8}));  // columns are as they must be
}

TEST(Integer, ComparisonsAreBroadcast) {
  const auto causal = [](const Tensor& keys) {
    const Tensor queries = no_grad::view(no_grad::arange(keys.tape(), 96), {1, 1, 96, 1});
    return no_grad::less_equal(keys, queries);
  };
  EXPECT_EQ(requests_of({1, 1, 1, 128}, kInt, causal), (Requests{768, 12288, -768}));
}

TEST(Integer, InfinitiesAreLookedForInMagnitudes) {
  EXPECT_EQ(requests_of({2, 640}, DType::kFloat16, [](const Tensor& x) { return no_grad::isinf(x); }),
            (Requests{2560, 1280, -2560}));
}

TEST(Integer, WhatIsFiniteIsFoundWithAllPartsOfTheFormulaAtOnce) {
  EXPECT_EQ(requests_of({2, 640}, DType::kFloat16, [](const Tensor& x) { return no_grad::isfinite(x); }),
            (Requests{2560, 1280, 1280, 1280, -1280, -1280, -2560}));
}

TEST(Integer, ASumOfBooleansIsOfACopyInInt64) {
  EXPECT_EQ(requests_of({6, 300}, kBool, [](const Tensor& x) { return no_grad::sum(x, 1); }),
            (Requests{48, 14400, -14400}));
}

TEST(Integer, ANumberToThePowerOfATensorIsOnTheCardForTheCall) {
  EXPECT_EQ(requests_of({2, 640}, DType::kFloat32, [](const Tensor& x) { return no_grad::power_of_number(x); }),
            (Requests{5120, 8, -8}));
}

// copy_kernel_cuda: of pageable memory, for which the host waits.
TEST(Integer, AListOfPythonsIsWaitedFor) {
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input({2}, DType::kFloat32);
  KernelLog& kernels = x.tape().kernels;
  kernels.recording = true;
  const Tensor ids = no_grad::from_list(x.tape(), {3});
  ASSERT_NE(kernels.last(), nullptr);
  EXPECT_EQ(kernels.last()->kind, KernelKind::kSynchronize);
}

TEST(Integer, IsSeenNeitherByAutogradNorByTheListOfKernels) {
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input({2, 64}, DType::kFloat32);
  Tape& tape = x.tape();
  tape.kernels.recording = true;
  const std::size_t before = tape.kernels.size();
  const Tensor result = no_grad::multiply(x, no_grad::to(no_grad::greater(x), DType::kFloat32));
  EXPECT_FALSE(result.requires_grad());
  EXPECT_EQ(tape.kernels.size(), before);
  EXPECT_TRUE(tape.kernels.recording);
  EXPECT_TRUE(tape.modes.grad_enabled);
}

}  // namespace
}  // namespace memcalc
