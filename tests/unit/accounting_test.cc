// report/accounting: the closed form, against the figures that everyone knows.
#include "memcalc/report/accounting.h"

#include <gtest/gtest.h>

#include <array>
#include <cctype>
#include <initializer_list>
#include <limits>
#include <string>
#include <tuple>

#include "memcalc/base/error.h"
#include "memcalc/memcalc.h"
#include "memcalc/train/step.h"
#include "support/paths.h"

namespace memcalc {
namespace {

constexpr std::int64_t kParameters = 1000;

// Ten vectors of 100 parameters.
AccountingInput input(DType weights, Precision precision, Optimizer optimizer) {
  AccountingInput in{.weights_dtype = weights, .precision = precision, .optimizer = optimizer};
  for (int i = 0; i < 10; ++i) in.add_trainable({{kParameters / 10}, weights});
  return in;
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
    const Bytes scaler = each.input.precision == Precision::kAmpFp16 ? 8 : 0;  // scale and growth counter
    EXPECT_EQ(total_of(accounting.profile).total_bytes, each.profile * kParameters + scaler) << each.what;
    EXPECT_NEAR(total_of(accounting.profile).bytes_per_parameter, each.profile, 0.01) << each.what;
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

// States of one tensor: bytes on the card, scalars, in managed memory, maps.
TEST(Accounting, StatesOfATensor) {
  const Shape matrix{1000, 100}, vector{4095}, small{64, 64};
  const struct {
    Optimizer optimizer;
    OptimizedTensor tensor;
    Loop loop;
    StateBytes expected;
  } cases[] = {
      {Optimizer::kAdamWAmsgrad, {matrix, DType::kBFloat16}, Loop::kBare, {.tensors = 600000}},
      {Optimizer::kSgdWeightDecay, {matrix, DType::kFloat32}, Loop::kBare, {}},
      {Optimizer::kAdagrad, {matrix, DType::kFloat32}, Loop::kBare, {.tensors = 400000}},
      // accelerate moves the step counter to the card
      {Optimizer::kAdagrad, {matrix, DType::kFloat32}, Loop::kTrainer, {.tensors = 400000, .scalars = 4}},
      // 1000 rows and 100 columns, float32 in transformers, the weight's dtype in torch
      {Optimizer::kAdafactor, {matrix, DType::kBFloat16}, Loop::kTrainer, {.tensors = 4400, .scalars = 4}},
      {Optimizer::kAdafactorTorch, {matrix, DType::kBFloat16}, Loop::kBare, {.tensors = 2200}},
      {Optimizer::kMuon, {matrix, DType::kFloat32}, Loop::kBare, {.tensors = 400000}},
      {Optimizer::kMuon, {vector, DType::kFloat32}, Loop::kBare, {.tensors = 32760}},
      // 100000 bytes and 391 scales of 4 bytes, twice
      {Optimizer::kAdamW8bit, {matrix, DType::kFloat32}, Loop::kBare, {.tensors = 203128, .tables = 2048}},
      {Optimizer::kAdamW8bit, {matrix, DType::kFloat32, true}, Loop::kBare, {.tensors = 203128, .tables = 2048}},
      {Optimizer::kAdamW8bit, {matrix, DType::kFloat32, true}, Loop::kTrainer, {.tensors = 800000}},
      {Optimizer::kSgdMomentum8bit,
       {matrix, DType::kFloat32, true},
       Loop::kTrainer,
       {.tensors = 101564, .tables = 1024}},
      {Optimizer::kLion8bit, {vector, DType::kBFloat16}, Loop::kBare, {.tensors = 16380}},
      {Optimizer::kLion8bit, {small, DType::kBFloat16}, Loop::kBare, {.tensors = 4160, .tables = 1024}},
      // 100000 elements and more are paged, their scales are not
      {Optimizer::kPagedAdamW, {matrix, DType::kBFloat16}, Loop::kBare, {.managed = 800000}},
      {Optimizer::kPagedAdamW, {small, DType::kBFloat16}, Loop::kBare, {.tensors = 32768}},
      {Optimizer::kPagedLion8bit,
       {matrix, DType::kBFloat16},
       Loop::kBare,
       {.tensors = 1564, .managed = 100000, .tables = 1024}},
      {Optimizer::kAdEMAMix, {matrix, DType::kFloat32}, Loop::kBare, {.tensors = 1200000}},
  };
  for (const auto& each : cases) {
    const StateBytes bytes = rule_of(each.optimizer).state_bytes(each.tensor, each.loop);
    SCOPED_TRACE(name_of(each.optimizer));
    EXPECT_EQ(bytes.tensors, each.expected.tensors);
    EXPECT_EQ(bytes.scalars, each.expected.scalars);
    EXPECT_EQ(bytes.managed, each.expected.managed);
    EXPECT_EQ(bytes.tables, each.expected.tables);
  }
}

TEST(Accounting, PagedStatesAreARowOfTheirOwn) {
  AccountingInput in{.optimizer = Optimizer::kPagedAdamW};
  in.add_trainable({{1000, 100}, DType::kFloat32});
  const Accounting accounting = account(in);
  EXPECT_EQ(bytes_of(accounting.profile, "paged states"), 8);
  EXPECT_EQ(bytes_of(accounting.profile, "optimizer states"), 0);
}

TEST(Accounting, FrozenParametersHaveWeightsOnly) {
  AccountingInput frozen{.optimizer = Optimizer::kAdamWForeach};
  frozen.add_trainable({{100}, DType::kFloat32});
  frozen.add_frozen({{kParameters - 100}, DType::kFloat32});
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
  AccountingInput huge;
  huge.parameters = std::numeric_limits<std::int64_t>::max() / 2;
  huge.trainable_parameters = huge.parameters;
  EXPECT_THROW((void)account(huge), Error);
  EXPECT_THROW(huge.add_trainable({{std::numeric_limits<std::int64_t>::max() / 2}, DType::kFloat32}), Error);
}

TEST(Accounting, NothingIsNothing) {
  const Accounting accounting = account({});
  EXPECT_EQ(total_of(accounting.profile).total_bytes, 0);
}

// --- the tie to the simulation: what is held at the end of a step, before the gradients are dropped ---

struct Tie {
  std::string model;
  Bytes buffers;  // of the module, which the closed form of parameters does not count
  Task task;
};

// BERT: position and token type ids, 2 x 512 int64. LLaMA: rotary frequencies and their original, 32 float32 each.
const Tie kTies[] = {{"bert-large", 8192, Task::kSequenceClassification},
                     {"bert-base", 8192, Task::kMaskedLm},
                     {"roberta-large", 8224, Task::kMaskedLm},
                     {"gpt2", 0, Task::kCausalLm},
                     {"llama-3.2-1b", 256, Task::kCausalLm},
                     {"tinyllama-1.1b", 256, Task::kCausalLm},
                     {"mistral-7b", 512, Task::kCausalLm}};

// The second step is the first steady one; whether zero_grad ends it or opens the next is the loop's affair.
std::array<Bytes, kCategoryCount> held_after_second_step(const Trace& trace) {
  std::array<Bytes, kCategoryCount> held{};
  std::array<Bytes, kCategoryCount> after{};
  for (const Event& event : trace.events) {
    if (event.kind == EventKind::kEmptyCache) continue;
    const Block& block = trace.blocks[static_cast<std::size_t>(event.block)];
    held[static_cast<std::size_t>(block.category)] +=
        event.kind == EventKind::kAllocate ? block.requested : -block.requested;
    if (event.step == 1 && event.phase != Phase::kZero) after = held;
  }
  return after;
}

Bytes total_of(const Accounting& accounting, std::initializer_list<const char*> names) {
  Bytes total = 0;
  for (const AccountingRow& row : accounting.profile) {
    for (const char* name : names) total += row.name == name ? row.total_bytes : 0;
  }
  return total;
}

// The simulation against the closed form, for one run.
void expect_tie(const Tie& tie, Precision precision, Loop loop, Optimizer optimizer) {
  static const SpecRegistry registry(test::specs_dir().string());
  const ModelSpec model = registry.model(tie.model);
  const RunSpec run = resolve(model, {.task = tie.task,
                                      .batch_size = 1,
                                      .sequence_length = 128,
                                      .precision = precision,
                                      .loop = loop,
                                      .optimizer = optimizer})
                          .run;
  const SymbolicRun symbolic = run_symbolically(model, run, registry.device("h100-sxm"));
  AccountingInput input{
      .weights_dtype = weights_dtype_of(run), .precision = precision, .optimizer = optimizer, .loop = loop};
  for (const ParameterInfo& parameter : symbolic.parameters) {
    input.add_trainable({parameter.shape, parameter.dtype, parameter.is_embedding});
  }
  const Accounting accounting = account(input);
  const auto held = held_after_second_step(symbolic.trace);
  const auto of = [&](Category category) { return held[static_cast<std::size_t>(category)]; };
  EXPECT_EQ(of(Category::kWeights), total_of(accounting, {"weights"}) + tie.buffers);
  EXPECT_EQ(of(Category::kGradients), total_of(accounting, {"gradients"}));
  EXPECT_EQ(of(Category::kOptimizerStates),
            total_of(accounting, {"optimizer states", rule_of(optimizer).scalars, "state maps", "loss scaler"}));
  EXPECT_EQ(of(Category::kAutocastCopies), total_of(accounting, {"autocast copies"}));
  EXPECT_EQ(symbolic.managed_bytes, total_of(accounting, {"paged states"}));
}

class AccountingTie : public ::testing::TestWithParam<std::tuple<Tie, Precision, Loop, Optimizer>> {};

TEST_P(AccountingTie, PersistentCategoriesEqualTheClosedForm) {
  const auto& [tie, precision, loop, optimizer] = GetParam();
  expect_tie(tie, precision, loop, optimizer);
}

TEST(AccountingTies, OfEveryOptimizer) {
  for (std::size_t i = 0; i < kOptimizerCount; ++i) {
    const auto optimizer = static_cast<Optimizer>(i);
    for (const Loop loop : {Loop::kTrainer, Loop::kBare}) {
      // The Trainer takes neither of the two (spec/validate.cc).
      const bool refused = optimizer == Optimizer::kMuon || optimizer == Optimizer::kAdafactorRelative;
      if (loop == Loop::kTrainer && refused) continue;
      SCOPED_TRACE(std::string(name_of(optimizer)) + ", " + std::string(name_of(loop)));
      expect_tie({"bert-base", 8192, Task::kSequenceClassification}, Precision::kAmpFp16, loop, optimizer);
      expect_tie({"llama-3.2-1b", 256, Task::kCausalLm}, Precision::kBf16, loop, optimizer);
    }
  }
}

std::string name_of_case(const ::testing::TestParamInfo<AccountingTie::ParamType>& info) {
  const auto& [tie, precision, loop, optimizer] = info.param;
  std::string name = tie.model + "_" + std::string(name_of(precision)) + "_" + std::string(name_of(loop)) + "_" +
                     std::string(name_of(optimizer));
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Models, AccountingTie,
    ::testing::Combine(::testing::ValuesIn(kTies),
                       ::testing::Values(Precision::kFp32, Precision::kAmpFp16, Precision::kAmpBf16, Precision::kBf16),
                       ::testing::Values(Loop::kTrainer, Loop::kBare),
                       ::testing::Values(Optimizer::kAdamWForeach, Optimizer::kAdamWFused, Optimizer::kAdamWForLoop,
                                         Optimizer::kSgd, Optimizer::kSgdMomentum)),
    name_of_case);

}  // namespace
}  // namespace memcalc
