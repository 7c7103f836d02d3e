// What mixtures of experts are made of: the operators beside matrix products (sizes as measured on an H100, in the
// comments), and what follows for whole models: parameters, work, memory that no routing changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "memcalc/memcalc.h"
#include "memcalc/symbolic/ops/complex.h"
#include "memcalc/symbolic/ops/copy_slices.h"
#include "memcalc/symbolic/ops/cub.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/grouped_mm.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/scan.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/step.h"
#include "support/error_text.h"
#include "support/registry.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

using test::TapeBench;

constexpr DType kFloat = DType::kFloat32;
constexpr DType kBfloat = DType::kBFloat16;
constexpr Operator kNewEmpty{"aten::new_empty"};

/// Forward, then backward, of an operator over inputs that the case makes.
void check(const std::function<Tensor(TapeBench&)>& call, const char* forward, const char* backward) {
  TapeBench bench;
  bench.warm_up();
  const Tensor output = call(bench);
  EXPECT_EQ(bench.events(), forward);
  if (!output.requires_grad()) return;
  bench.backward(output);
  EXPECT_EQ(bench.events(), backward);
}

// 64 rows, 8 groups: 8 x 60 bytes of arguments, 132 multiprocessors x 512 bytes of descriptors.
TEST(GroupedMm, CutlassTakesArgumentsAndDescriptors) {
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({64, 32}, kBfloat);
        const Tensor weight = bench.input({8, 16, 32}, kBfloat);
        const Tensor offsets = bench.input({8}, DType::kInt32, false);
        bench.start();
        return grouped_mm(x, transpose(weight, 1, 2), offsets);
      },
      "+2048 _grouped_mm; +480 _grouped_mm; +67584 _grouped_mm; -67584; -480",
      // the matrices' gradient first, 8 x 16 x 32 x 2, then the rows'
      "+8192 _grouped_mm; +480 _grouped_mm; +67584 _grouped_mm; -67584; -480; "
      "+4096 _grouped_mm; +480 _grouped_mm; +67584 _grouped_mm; -67584; -480");
}

TEST(GroupedMm, AnOddNumberOfGroupsPadsItsPointers) {
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({64, 32}, kBfloat, false);
        const Tensor weight = bench.input({5, 32, 16}, kBfloat, false);
        const Tensor offsets = bench.input({5}, DType::kInt32, false);
        bench.start();
        return grouped_mm(x, weight, offsets);
      },
      "+2048 _grouped_mm; +324 _grouped_mm; +67584 _grouped_mm; -67584; -324", "");  // 6 x 24 + 5 x 36
}

TEST(GroupedMm, OtherTypesAndCardsLoopOverTheGroups) {
  const auto call = [](TapeBench& bench) {
    const Tensor x = bench.input({64, 32}, kFloat);
    const Tensor weight = bench.input({8, 16, 32}, kFloat);
    const Tensor offsets = bench.input({8}, DType::kInt32, false);
    bench.start();
    return grouped_mm(x, transpose(weight, 1, 2), offsets);
  };
  check(call, "+4096 _grouped_mm", "+16384 _grouped_mm; +8192 _grouped_mm");
  DeviceSpec ampere = test::h100();
  ampere.compute_capability_major = 8;
  TapeBench bench(ampere);
  bench.warm_up();
  const Tensor x = bench.input({64, 32}, kBfloat, false);
  const Tensor weight = bench.input({8, 32, 16}, kBfloat, false);
  bench.start();
  const Tensor y = grouped_mm(x, weight, bench.input({8}, DType::kInt32, false));
  EXPECT_EQ(bench.events(), "+32 input; +2048 _grouped_mm");
}

TEST(GroupedMm, EveryRowIsMultipliedOnce) {
  TapeBench bench;
  bench.tape.kernels.recording = true;
  const Tensor x = bench.input({64, 32}, kBfloat), weight = bench.input({8, 32, 16}, kBfloat);
  const Tensor y = grouped_mm(x, weight, bench.input({8}, DType::kInt32, false));
  bench.backward(y);
  ASSERT_EQ(bench.tape.kernels.size(), 3U);
  for (const Kernel& kernel : bench.tape.kernels.list()) {
    EXPECT_EQ(kernel.operator_class, OperatorClass::kContraction);
    EXPECT_EQ(kernel.flops, 2.0 * 64 * 32 * 16);
    EXPECT_EQ(kernel.bytes, 2.0 * (64 * (32 + 16) + 8 * 32 * 16));
  }
}

TEST(GroupedMm, RefusesRowsThatAreNo16Bytes) {
  EXPECT_EQ(
      error_text([] {
        TapeBench bench;
        const Tensor x = bench.input({64, 12}, kBfloat), weight = bench.input({8, 12, 16}, kBfloat);
        (void)grouped_mm(x, weight, bench.input({8}, DType::kInt32, false));
      }),
      "torch's grouped_mm takes experts whose sizes are multiples of 8 in bfloat16, not 12; accepted: another width of "
      "the experts, or another precision");
}

TEST(Sorting, SortTakesTemporaryStorageBeyond4096) {
  const auto sorted = [](std::int64_t n) {
    TapeBench bench;
    const Tensor x = bench.input({n}, DType::kInt64, false);
    bench.start();
    const Selection result = sort(x);
    return bench.events();
  };
  EXPECT_EQ(sorted(4096), "+32768 sort; +32768 sort; +32768 sort; -32768");
  EXPECT_EQ(sorted(8192), "+65536 sort; +65536 sort; +65536 sort; +150015 sort; -150015; -65536");
}

TEST(Sorting, RadixSortLooksAtTheBitsThatAreUsed) {
  EXPECT_EQ(radix_sort_bytes(2304), 1) << "one thread block";
  EXPECT_EQ(radix_sort_bytes(2401, 8), 3583) << "one pass: no second buffers";
  EXPECT_EQ(radix_sort_bytes(8192, 64), 150015);
  EXPECT_EQ(radix_sort_bytes(8192, 13), 2 * 65536 + 2 * 2048 + 2 * 1024 + 511) << "two passes";
}

TEST(Sorting, TopkScattersItsGradient) {
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({64, 8});
        bench.start();
        return topk(x, 2).values;
      },
      "+512 topk; +1024 topk", "+2048 zeros; -1024");
}

TEST(Sorting, MaxKeepsWhereItWas) {
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({64, 4, 8});
        bench.start();
        return max_along(x, x.rank() - 1, false).values;
      },
      "+1024 max; +2048 max", "+8192 zeros; -2048");
}

TEST(Indexing, GatherAndMaskedFill) {
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({64, 8});
        const Tensor index = bench.input({64, 2}, DType::kInt64, false);
        bench.start();
        return gather(x, index);
      },
      "+512 gather", "+2048 new_zeros");
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({64, 8});
        const Tensor mask = bench.input({64, 1}, DType::kBool, false);
        bench.start();
        return masked_fill(x, mask);
      },
      "+2048 masked_fill", "+2048 masked_fill");
}

TEST(Indexing, RowsOfAVectorAreScalars) {  // 8 rows of 4 bytes by 16 indices
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({8});
        const Tensor index = bench.input({16}, DType::kInt64, false);
        bench.start();
        return index_rows(x, index);
      },
      "+64 index",
      "+32 new_zeros; +128 _index_put_impl_; +128 _index_put_impl_; -128; +128 _index_put_impl_; "
      "+128 _index_put_impl_; +128 _index_put_impl_; +1 _index_put_impl_; -1; -128; -128; -128; -128");
}

TEST(Counting, BinsAndTheirSums) {
  TapeBench bench;
  const Tensor x = bench.input({64}, DType::kInt32, false);
  bench.start();
  const Tensor bins = count_values(x, 8);
  const Tensor offsets = cumulative_sum(bins, 0, DType::kInt32);
  EXPECT_EQ(bench.events(), "+32 histc; +32 cumsum; +1023 cumsum; -1023");
}

TEST(InPlace, DivisionKeepsACopyOfWhatItOverwrites) {
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({64, 2}), y = bench.input({64, 1});
        const Tensor product = multiply_scalar(x);
        bench.start();
        return divide_in_place(product, y);
      },
      "+512 clone",
      // the divisor's: x / y, / y, -gradient, their product; then the dividend's; then the divisor's is summed
      "+512 div; +512 div; +512 neg; +512 mul; -512; -512; -512; +512 div; +256 sum; -512; -512; +512 mul; -512");
}

TEST(InPlace, ColumnsAreCopiedThroughTheWholeTensor) {  // [64, 6] float32 from [64, 4] and [64, 2]
  check(
      [](TapeBench& bench) {
        const Tensor a = bench.input({64, 4}), b = bench.input({64, 2});
        bench.start();
        Tensor whole = bench.tape.empty({64, 6}, kFloat, kNewEmpty);
        whole = copy_into_columns(whole, 0, a);
        return copy_into_columns(whole, 4, b);
      },
      "+1536 new_empty",
      // of the second copy: the whole gradient, its part, zeros for the base; then the same of the first, which has
      // none
      "+1536 CopySlices; +512 clone; +512 zeros_like; -512; +1536 CopySlices; +1024 clone; -1536; -1536");
}

TEST(ComplexNumbers, ViewsAndAProduct) {  // [4, 8] float32 as [4, 4] complex64
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({4, 4, 2});
        const Tensor turn = bench.input({4, 4}, DType::kComplex64, false);
        bench.start();
        return view_as_real(multiply_complex(view_as_complex(x), turn));
      },
      "+128 mul", "+128 clone; +128 mul; -128");
}

TEST(Reductions, SumOverADimensionIsFloat32UnderAutocast) {
  const auto call = [](bool autocast) {
    return [=](TapeBench& bench) {
      const Tensor x = bench.input({64, 2, 16}, kBfloat);
      if (autocast) bench.tape.modes.autocast.dtype = kBfloat;
      bench.start();
      return sum_over(x, 1, false);
    };
  };
  check(call(false), "+2048 sum", "");  // the gradient is a view
  check(call(true), "+4096 sum", "+4096 _to_copy");
}

// --- whole models

using test::registry;

struct Mixture {
  const char* name;
  std::int64_t active;  // by hand: all but experts - k of experts in each of the layers that have any
};

class Mixtures : public ::testing::TestWithParam<Mixture> {};

Report report_of(const std::string& name) {
  const ModelSpec model = registry().model(name);
  RunOptions options;
  options.batch_size = 1;
  options.sequence_length = 128;
  options.precision = Precision::kBf16;
  options.loop = Loop::kBare;
  return estimate(model, resolve(model, options), registry().device("h200-sxm"));
}

TEST_P(Mixtures, HaveThePublishedParametersAndFewerActiveOnes) {
  const Report report = report_of(GetParam().name);
  EXPECT_EQ(report.parameters_total, report.model.published_parameters);
  EXPECT_EQ(report.parameters_active, GetParam().active);
  EXPECT_THAT(render(report, Format::kText), ::testing::HasSubstr(" active in a token)"));
}

// 6 N per token holds for the products with weights; attention's scores add to them, the embedding does not count.
TEST_P(Mixtures, WorkFollowsTheActiveParameters) {
  const Report report = report_of(GetParam().name);
  const FlopRow& contraction = report.flops[static_cast<std::size_t>(OperatorClass::kContraction)];
  const double six_n = 6.0 * 128 * static_cast<double>(report.parameters_active);
  EXPECT_GT(contraction.forward + contraction.backward, 0.8 * six_n);
  EXPECT_LT(contraction.forward + contraction.backward, 1.05 * six_n);
}

INSTANTIATE_TEST_SUITE_P(Specs, Mixtures,
                         ::testing::Values(Mixture{"mixtral-8x7b", 12879925248}, Mixture{"mixtral-8x22b", 39152031744},
                                           Mixture{"qwen3-30b-a3b", 3353032704},
                                           Mixture{"qwen3-235b-a22b", 22190763520}, Mixture{"gpt-oss-20b", 4187440704},
                                           Mixture{"gpt-oss-120b", 5711982912}, Mixture{"deepseek-v2-lite", 2661150208},
                                           Mixture{"deepseek-v2", 21375800320}, Mixture{"deepseek-v3", 37552282624}),
                         [](const auto& each) {
                           std::string name = each.param.name;
                           for (char& letter : name) letter = letter == '-' ? '_' : letter;
                           return name;
                         });

TEST(GptOss, TakesEagerAttentionOnly) {
  const ModelSpec model = registry().model("gpt-oss-20b");
  EXPECT_EQ(resolve(model, {.batch_size = 1}).run.attention, Attention::kEager);
  EXPECT_EQ(error_text([&] { static_cast<void>(resolve(model, {.batch_size = 1, .attention = Attention::kSdpa})); }),
            "attention sdpa: gpt_oss has only the eager attention of transformers; "
            "accepted: --attn eager");
}

TEST(GptOss, SinksAreRegisteredBeforeTheProjections) {
  const ModelSpec model = registry().model("gpt-oss-20b");
  RunSpec run_spec{
      .precision = Precision::kBf16, .attention = Attention::kEager, .purpose = Training{.loop = Loop::kBare}};
  run_spec.sequence_length = 16;
  const SymbolicRun run = run_symbolically(model, run_spec, registry().device("h200-sxm"));
  EXPECT_EQ(run.parameters[1].name, "model.layers.0.self_attn.sinks");
  EXPECT_EQ(run.parameters[2].name, "model.layers.0.self_attn.q_proj.weight");
}

TEST(LatentAttention, FlashPadsTheValues) {
  const ModelSpec model = registry().model("deepseek-v2-lite");
  RunSpec run{.precision = Precision::kBf16, .attention = Attention::kFlash, .purpose = Training{.loop = Loop::kBare}};
  run.sequence_length = 64;
  EXPECT_GT(run_symbolically(model, run, registry().device("h200-sxm")).trace.events.size(), 1000U);
}

}  // namespace
}  // namespace memcalc
