// report/accounting: the closed form, against the figures that everyone knows.
#include "memcalc/report/accounting.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "memcalc/base/error.h"

namespace memcalc {
namespace {

constexpr std::int64_t kParameters = 1000;

AccountingInput input(DType weights, Precision precision, Optimizer optimizer) {
  return {.parameters = kParameters,
          .trainable_parameters = kParameters,
          .trainable_tensors = 10,
          .weights_dtype = weights,
          .precision = precision,
          .optimizer = optimizer};
}

double bytes_of(const std::vector<AccountingRow>& rows, const std::string& name) {
  for (const AccountingRow& row : rows) {
    if (row.name == name) return row.bytes_per_parameter;
  }
  return -1;
}

TEST(Accounting, TotalsThatPeopleKnow) {
  const struct {
    const char* what;
    AccountingInput input;
    double classic;
    double profile;
  } cases[] = {
      // 6 (2-byte weights + 4-byte master weights) + 4 (gradients) + 8 (states); PyTorch: 4 + 4 + 8
      {"amp AdamW", input(DType::kFloat32, Precision::kAmpBf16, Optimizer::kAdamWForeach), 18, 16},
      {"amp fp16 AdamW", input(DType::kFloat32, Precision::kAmpFp16, Optimizer::kAdamWForLoop), 18, 16},
      {"fp32 AdamW", input(DType::kFloat32, Precision::kFp32, Optimizer::kAdamWForeach), 16, 16},
      {"tf32 AdamW", input(DType::kFloat32, Precision::kTf32, Optimizer::kAdamWForeach), 16, 16},
      {"pure bf16 AdamW", input(DType::kBFloat16, Precision::kBf16, Optimizer::kAdamWForeach), 8, 8},
      {"autocast over bf16 weights", input(DType::kBFloat16, Precision::kAmpBf16, Optimizer::kAdamWForeach), 8, 8},
      {"fp32 SGD-momentum", input(DType::kFloat32, Precision::kFp32, Optimizer::kSgdMomentum), 12, 12},
      {"fp32 SGD", input(DType::kFloat32, Precision::kFp32, Optimizer::kSgd), 8, 8},
      {"amp SGD", input(DType::kFloat32, Precision::kAmpBf16, Optimizer::kSgd), 10, 8},
  };
  for (const auto& each : cases) {
    const Accounting accounting = account(each.input);
    EXPECT_EQ(total_of(accounting.classic).bytes_per_parameter, each.classic) << each.what;
    EXPECT_EQ(total_of(accounting.profile).bytes_per_parameter, each.profile) << each.what;
    EXPECT_EQ(total_of(accounting.profile).total_bytes, each.profile * kParameters) << each.what;
  }
}

TEST(Accounting, MixedPrecisionTermByTerm) {
  const Accounting accounting = account(input(DType::kFloat32, Precision::kAmpFp16, Optimizer::kAdamWForeach));
  EXPECT_EQ(bytes_of(accounting.classic, "weights"), 2);
  EXPECT_EQ(bytes_of(accounting.classic, "master weights"), 4);
  EXPECT_EQ(bytes_of(accounting.classic, "gradients"), 4);
  EXPECT_EQ(bytes_of(accounting.classic, "optimizer states"), 8);
  EXPECT_EQ(bytes_of(accounting.profile, "weights"), 4);
  EXPECT_EQ(bytes_of(accounting.profile, "autocast copies"), 0) << "held inside a step only";
}

TEST(Accounting, Alternatives) {
  const Accounting amp = account(input(DType::kFloat32, Precision::kAmpFp16, Optimizer::kAdamWFused));
  EXPECT_EQ(bytes_of(amp.alternatives, "inference"), 6);
  EXPECT_EQ(bytes_of(amp.alternatives, "AdamW states"), 8);
  EXPECT_EQ(bytes_of(amp.alternatives, "8-bit AdamW states"), 2);
  EXPECT_EQ(bytes_of(amp.alternatives, "SGD with momentum states"), 4);
  EXPECT_EQ(bytes_of(amp.alternatives, "SGD states"), 0);
  const Accounting bf16 = account(input(DType::kBFloat16, Precision::kBf16, Optimizer::kAdamWFused));
  EXPECT_EQ(bytes_of(bf16.alternatives, "inference"), 2);
  EXPECT_EQ(bytes_of(bf16.alternatives, "AdamW states"), 4);
}

TEST(Accounting, FusedAdamWCountsStepsOnTheDevice) {
  const Accounting accounting = account(input(DType::kFloat32, Precision::kFp32, Optimizer::kAdamWFused));
  EXPECT_EQ(total_of(accounting.profile).total_bytes, 16 * kParameters + 10 * 4);
  EXPECT_EQ(total_of(accounting.classic).total_bytes, 16 * kParameters);
}

TEST(Accounting, FrozenParametersHaveWeightsOnly) {
  AccountingInput frozen = input(DType::kFloat32, Precision::kFp32, Optimizer::kAdamWForeach);
  frozen.trainable_parameters = 100;
  EXPECT_EQ(total_of(account(frozen).profile).total_bytes, 4 * kParameters + 12 * 100);
}

TEST(Accounting, EveryRowHasARule) {
  for (const Optimizer optimizer : {Optimizer::kAdamWFused, Optimizer::kSgd, Optimizer::kSgdMomentum}) {
    const Accounting accounting = account(input(DType::kFloat32, Precision::kAmpBf16, optimizer));
    for (const auto* rows : {&accounting.classic, &accounting.profile, &accounting.alternatives}) {
      for (const AccountingRow& row : *rows) EXPECT_FALSE(row.rule.empty()) << row.name;
    }
  }
}

TEST(Accounting, OverflowIsDetected) {
  AccountingInput huge = input(DType::kFloat32, Precision::kFp32, Optimizer::kAdamWForeach);
  huge.parameters = std::numeric_limits<std::int64_t>::max() / 2;
  huge.trainable_parameters = huge.parameters;
  EXPECT_THROW((void)account(huge), Error);
}

TEST(Accounting, NothingIsNothing) {
  const Accounting accounting = account({});
  EXPECT_EQ(total_of(accounting.profile).total_bytes, 0);
}

}  // namespace
}  // namespace memcalc
