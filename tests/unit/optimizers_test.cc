// train/optimizers: the table of rules, lists by dtype, parameters without a gradient, and the loss scaler beside rules
// that no recorded run combines with it.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/vector_quantize.h"
#include "memcalc/train/clip_grad.h"
#include "memcalc/train/grad_scaler.h"
#include "memcalc/train/optimizer.h"
#include "memcalc/train/optimizers/lists.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

using test::TapeBench;

constexpr Operator kGradient{"gradient"};

class Optimizers : public ::testing::Test {
 protected:
  Parameter& parameter(const Shape& shape, DType dtype = DType::kFloat32, bool with_gradient = true) {
    parameters_.reserve(8);
    Parameter& result = parameters_.emplace_back("", bench_.tape.parameter(shape, dtype));
    if (with_gradient) result.tensor.impl()->grad = bench_.tape.empty(shape, dtype, kGradient);
    return result;
  }
  ParameterGroup all() {
    ParameterGroup group;
    for (const Parameter& each : parameters_) group.push_back(&each);
    return group;
  }
  // The requests of one step.
  std::string step_of(OptimizerSteps& optimizer) {
    bench_.start();
    optimizer.step();
    return bench_.events();
  }

  TapeBench bench_;
  std::vector<Parameter> parameters_;
};

TEST_F(Optimizers, EachHasARuleWithItsSource) {
  for (std::size_t i = 0; i < kOptimizerCount; ++i) {
    const OptimizerRule& rule = rule_of(static_cast<Optimizer>(i));
    SCOPED_TRACE(kOptimizerNames[i]);
    EXPECT_EQ(rule.optimizer, static_cast<Optimizer>(i));
    EXPECT_TRUE(std::string_view(rule.source).ends_with(".py"));
    EXPECT_NE(std::string_view(rule.title), "");
    EXPECT_NE(std::string_view(rule.states), "");
    EXPECT_GT(rule.flops, 0);
    EXPECT_GT(rule.bytes_moved(4), 0);
  }
}

TEST_F(Optimizers, NamesOfTransformersAreAccepted) {
  EXPECT_EQ(optimizer_from("adamw_torch"), Optimizer::kAdamWForeach);
  EXPECT_EQ(optimizer_from("adamw_torch_fused"), Optimizer::kAdamWFused);
  EXPECT_EQ(optimizer_from("adamw_bnb_8bit"), Optimizer::kAdamW8bit);
  EXPECT_EQ(optimizer_from("adamw_8bit"), Optimizer::kAdamW8bit);
  EXPECT_EQ(optimizer_from("paged_adamw_32bit"), Optimizer::kPagedAdamW);
  EXPECT_EQ(optimizer_from("lion_32bit"), Optimizer::kLion);
  EXPECT_EQ(optimizer_from("paged-lion-8bit"), Optimizer::kPagedLion8bit);
  EXPECT_EQ(optimizer_from("galore_adamw"), std::nullopt);
}

// Of two dtypes the one seen last leads (ops_h100.jsonl has the same of AdamW and SGD).
TEST_F(Optimizers, ListsAreByDtype) {
  parameter({1}, DType::kBFloat16);
  parameter({2}, DType::kFloat32);
  parameter({3}, DType::kBFloat16);
  OptimizerSteps adagrad(bench_.tape,
                         RunSpec{.purpose = Training{.loop = Loop::kBare, .optimizer = Optimizer::kAdagrad}}, {all()});
  EXPECT_EQ(step_of(adagrad),
            "+8 _foreach_sqrt; +8 _foreach_mul; "
            "+2 _foreach_sqrt; +6 _foreach_sqrt; -8; +2 _foreach_mul; +6 _foreach_mul; -8; -6; -2; -6; -2");
  OptimizerSteps adamax(bench_.tape, RunSpec{.purpose = Training{.loop = Loop::kBare, .optimizer = Optimizer::kAdamax}},
                        {all()});
  (void)step_of(adamax);
  EXPECT_EQ(step_of(adamax), "+8 _foreach_abs; -8; +2 _foreach_abs; +6 _foreach_abs; -6; -2")
      << "its list dies before the next one";
}

TEST_F(Optimizers, AParameterWithoutAGradientIsLeftOut) {
  parameter({10});
  parameter({20}, DType::kFloat32, false);
  OptimizerSteps rmsprop(bench_.tape,
                         RunSpec{.purpose = Training{.loop = Loop::kBare, .optimizer = Optimizer::kRmsprop}}, {all()});
  EXPECT_EQ(step_of(rmsprop), "+40 zeros_like; +40 _foreach_sqrt; -40");
  EXPECT_EQ(step_of(rmsprop), "+40 _foreach_sqrt; -40");
  bench_.start();
  const Tensor norm = clip_grad_norm(bench_.tape, parameters_);
  EXPECT_EQ(bench_.events(),
            "+4 _foreach_norm; +4 _foreach_norm; -4; +4 stack; +4 linalg_vector_norm; -4; -4; "
            "+4 add; +4 reciprocal; +4 mul; -4; -4; +4 clamp; -4; -4");
}

TEST_F(Optimizers, MuonLeavesVectorsToAdamW) {
  parameter({5});
  parameter({4, 2});
  OptimizerSteps muon(bench_.tape, RunSpec{.purpose = Training{.loop = Loop::kBare, .optimizer = Optimizer::kMuon}},
                      {all()});
  const std::string first = step_of(muon);
  EXPECT_TRUE(first.starts_with("+32 zeros_like; +32 lerp; +16 _to_copy; +2 linalg_vector_norm; +2 clamp; -2; -2"));
  EXPECT_TRUE(first.ends_with("-16; +20 zeros_like; +20 zeros_like; +20 _foreach_sqrt; -20")) << first;
  EXPECT_EQ(step_of(muon).find("zeros_like"), std::string::npos);
}

TEST_F(Optimizers, BitsAndBytesTakesStatesAndNothingElse) {
  parameter({4096});
  parameter({4095});
  OptimizerSteps lion(bench_.tape, RunSpec{.purpose = Training{.loop = Loop::kBare, .optimizer = Optimizer::kLion8bit}},
                      {all()});
  EXPECT_EQ(step_of(lion), "+1024 _to_copy; +4096 zeros_like; +64 zeros; +16380 zeros_like");
  EXPECT_EQ(step_of(lion), "");
}

// The buffers of inductor's code for the update of one parameter (torch 2.11).
TEST_F(Optimizers, TorchaoWritesMeansInFloat32BeforeItPacksThem) {
  parameter({32, 512}, DType::kBFloat16);
  parameter({16, 256}, DType::kBFloat16);
  parameter({100}, DType::kBFloat16);
  const auto optimizer = [&](Optimizer name) {
    return OptimizerSteps(bench_.tape, RunSpec{.purpose = Training{.loop = Loop::kBare, .optimizer = name}}, {all()});
  };
  OptimizerSteps eight = optimizer(Optimizer::kAdamWTorchao8bit);
  (void)step_of(eight);
  EXPECT_EQ(step_of(eight),
            "+256 single_param_adam; +256 single_param_adam; +65536 single_param_adam; +65536 single_param_adam; "
            "-65536; -65536; -256; -256")
      << "a row of 256 is a block: one kernel; small ones have none";
  OptimizerSteps four = optimizer(Optimizer::kAdamWTorchao4bit);
  EXPECT_TRUE(
      step_of(four).starts_with("+8192 zeros; +512 zeros; +64 _to_copy; +8192 zeros; +512 zeros; +64 _to_copy; "
                                "+512 single_param_adam; +512 single_param_adam; +65536 single_param_adam; "
                                "+65536 single_param_adam; +131072 single_param_adam; +131072 single_param_adam; "
                                "-512; -512; -65536; -131072; -65536; -131072; "));
}

// transformers passes block_size=256; rates are tensors, which accelerate moves to the card and the scheduler copies.
TEST_F(Optimizers, TorchaosBlocksInTheTrainerAreLargerAndItsRatesLieOnTheCard) {
  parameter({32, 512}, DType::kBFloat16);
  OptimizerSteps four(bench_.tape,
                      RunSpec{.purpose = Training{.loop = Loop::kTrainer, .optimizer = Optimizer::kAdamWTorchao4bit}},
                      {all()});
  EXPECT_TRUE(
      step_of(four).starts_with("+4096 _to_copy; +8192 zeros; +256 zeros; +64 _to_copy; +8192 zeros; +256 zeros; "));
}

TEST_F(Optimizers, PagedStatesAreNotInTheTrace) {
  parameter({100000}, DType::kBFloat16);
  OptimizerSteps paged(bench_.tape,
                       RunSpec{.purpose = Training{.loop = Loop::kBare, .optimizer = Optimizer::kPagedAdamW}}, {all()});
  EXPECT_EQ(step_of(paged), "");
  EXPECT_EQ(bench_.tape.memory.managed_bytes, 800000);
  (void)step_of(paged);
  EXPECT_EQ(bench_.tape.memory.managed_bytes, 800000) << "made once";
}

// AdEMAMix's scales come first, and its first state holds two averages (ademamix.py).
TEST_F(Optimizers, AdEMAMix) {
  parameter({4096});
  OptimizerSteps ademamix(
      bench_.tape, RunSpec{.purpose = Training{.loop = Loop::kBare, .optimizer = Optimizer::kAdEMAMix8bit}}, {all()});
  EXPECT_EQ(step_of(ademamix),
            "+1024 _to_copy; +1024 _to_copy; +128 zeros; +64 zeros; +8192 zeros_like; +4096 zeros_like");
}

// Adagrad's states exist before the first step; accelerate then moves its step counters.
TEST_F(Optimizers, AdagradMakesItsStatesWhenItIsMade) {
  parameter({10});
  bench_.start();
  const OptimizerSteps bare(
      bench_.tape, RunSpec{.purpose = Training{.loop = Loop::kBare, .optimizer = Optimizer::kAdagrad}}, {all()});
  EXPECT_EQ(bench_.events(), "+40 full_like");
  bench_.start();
  const OptimizerSteps trainer(
      bench_.tape, RunSpec{.purpose = Training{.loop = Loop::kTrainer, .optimizer = Optimizer::kAdagrad}}, {all()});
  EXPECT_EQ(bench_.events(), "+40 full_like; +4 _to_copy");
}

// 24 operators of a matrix and 16 of a vector, three more where both are of 16 bits; torch's asks twice for a norm.
TEST_F(Optimizers, AdafactorsLaunchOneOperatorAfterTheOther) {
  struct Launched {
    std::int64_t kernels = 0, waits = 0;
    double flops = 0;
  };
  const auto launched = [&](Optimizer kind) {
    OptimizerSteps optimizer(bench_.tape, RunSpec{.purpose = Training{.loop = Loop::kBare, .optimizer = kind}},
                             {all()});
    bench_.start();
    bench_.tape.kernels.recording = true;
    optimizer.step();
    Launched result;
    for (const Kernel& kernel : bench_.tape.kernels.take()) {
      if (kernel.kind == KernelKind::kSynchronize) ++result.waits;
      if (kernel.operator_class == OperatorClass::kOptimizer) result.kernels += kernel.launches;
      result.flops += kernel.flops;
    }
    return result;
  };
  parameter({64, 32});
  EXPECT_EQ(launched(Optimizer::kAdafactor).kernels, 24);
  EXPECT_EQ(launched(Optimizer::kAdafactorRelative).kernels, 26);
  EXPECT_EQ(launched(Optimizer::kAdafactorRelative).waits, 1);
  EXPECT_EQ(launched(Optimizer::kAdafactorTorch).kernels, 18);
  EXPECT_EQ(launched(Optimizer::kAdafactorTorch).waits, 2);
  parameter({32}, DType::kBFloat16);
  EXPECT_EQ(launched(Optimizer::kAdafactor).kernels, 24 + 16 + 3);
  EXPECT_EQ(launched(Optimizer::kAdafactorTorch).kernels, 18 + 9);
  EXPECT_EQ(launched(Optimizer::kAdafactor).flops, 14 * (64 * 32 + 32));
}

// Only fused AdamW is handed the scale; every other optimizer gets unscaled gradients.
TEST_F(Optimizers, BitsandbytesWaitsBehindEachParameterAndFetchesPagedStates) {
  parameter({512, 512});
  parameter({32});
  const auto counted = [&](Optimizer kind) {
    OptimizerSteps optimizer(bench_.tape, RunSpec{.purpose = Training{.loop = Loop::kBare, .optimizer = kind}},
                             {all()});
    bench_.start();
    bench_.tape.kernels.recording = true;
    optimizer.step();
    int updates = 0, fetches = 0, waits = 0;
    for (const Kernel& each : bench_.tape.kernels.take()) {
      if (each.kind == KernelKind::kSynchronize) {
        ++waits;
        continue;
      }
      fetches += each.op == &kPrefetch;
      updates += each.op == &kUpdate32bit || each.op == &kUpdate8bit || each.op == &kUpdate8bitOneState;
    }
    return std::array{updates, fetches, waits};
  };
  EXPECT_EQ(counted(Optimizer::kAdamW8bit), (std::array{2, 0, 2}));
  EXPECT_EQ(counted(Optimizer::kPagedAdamW), (std::array{2, 1, 2})) << "small states are not paged";
}

TEST_F(Optimizers, TheLossScalerUnscalesForAllButFusedAdamW) {
  parameter({10});
  for (const Optimizer kind : {Optimizer::kLion, Optimizer::kMuon, Optimizer::kAdafactorTorch, Optimizer::kSgd}) {
    OptimizerSteps optimizer(bench_.tape, RunSpec{.purpose = Training{.loop = Loop::kBare, .optimizer = kind}},
                             {all()});
    GradScaler scaler(bench_.tape, true, 0);
    const Tensor scaled = scaler.scale(bench_.input({}));
    bench_.start();
    scaler.step(optimizer);
    EXPECT_TRUE(bench_.events().starts_with("+8 _to_copy; +8 reciprocal; -8; +4 _to_copy")) << name_of(kind);
  }
}

}  // namespace
}  // namespace memcalc
