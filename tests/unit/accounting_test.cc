// report/accounting: the closed form, against the figures that everyone knows.
#include "memcalc/report/accounting.h"

#include <gtest/gtest.h>

#include <array>
#include <cctype>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <tuple>

#include "memcalc/base/error.h"
#include "memcalc/memcalc.h"
#include "memcalc/train/step.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

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

// A float32 adapter on a 16-bit base, and a base of 4 bits: each tensor in its own bytes.
TEST(Accounting, EveryTensorInItsOwnBytes) {
  AccountingInput in{.weights_dtype = DType::kBFloat16, .precision = Precision::kBf16, .optimizer = Optimizer::kSgd};
  in.add_frozen({{700}, DType::kBFloat16});
  in.add_trainable({{100}, DType::kFloat32});
  in.add_packed("nf4", 6400, packed_bytes(Quantization::kNf4, 64, 100));
  const Accounting accounting = account(in);
  EXPECT_EQ(in.parameters, 7200);
  EXPECT_EQ(accounting.profile[0].total_bytes, 700 * 2 + 100 * 4 + 3200);
  EXPECT_EQ(accounting.profile[0].rule, "700 in bfloat16, 100 in float32, 6,400 in nf4");
  EXPECT_EQ(accounting.profile[1].name, "quantisation constants");
  EXPECT_EQ(accounting.profile[1].total_bytes, 100 * 4 + 16 * 4) << "a scale for each 64 numbers, 16 codes";
  EXPECT_EQ(accounting.profile[2].total_bytes, 100 * 4) << "gradients in the adapter's dtype";
}

// Bytes per parameter of a weight of 4096 x 4096: 4 bits and what they need to be read.
TEST(Accounting, PackedWeights) {
  constexpr std::int64_t kElements = 4096 * 4096;
  const auto per_parameter = [](Quantization kind) {
    const PackedBytes packed = packed_bytes(kind, 4096, 4096);
    return static_cast<double>(packed.weight + packed.constants) / kElements;
  };
  EXPECT_NEAR(per_parameter(Quantization::kNf4), 0.5 + 4.0 / 64, 1e-4);
  EXPECT_NEAR(per_parameter(Quantization::kNf4Double), 0.5 + 1.0 / 64 + 4.0 / (64 * 256), 1e-4);
  EXPECT_NEAR(per_parameter(Quantization::kInt8), 1 + 4.0 / 4096, 1e-4);
}

TEST(Accounting, InferenceHoldsWeightsAndAutocastCopies) {
  AccountingInput in{.precision = Precision::kAmpBf16, .infers = true};
  in.add_frozen({{1000}, DType::kFloat32});
  in.autocast_copies = 1800;
  const Accounting accounting = account(in);
  EXPECT_EQ(total_of(accounting.classic).bytes_per_parameter, 6);
  EXPECT_EQ(total_of(accounting.profile).total_bytes, 4 * 1000 + 1800);
  in.precision = Precision::kFp32;
  in.autocast_copies = 0;
  EXPECT_EQ(total_of(account(in).classic).bytes_per_parameter, 4);
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
  constexpr std::int64_t kMany = std::numeric_limits<std::int64_t>::max() / 5;
  AccountingInput huge;
  EXPECT_THROW(huge.add_trainable({{std::numeric_limits<std::int64_t>::max() / 2}, DType::kFloat32}), Error);
  huge.add_frozen({{kMany}, DType::kFloat32});
  EXPECT_THROW(huge.add_frozen({{kMany}, DType::kFloat32}), Error);
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
  const ModelSpec model = registry().model(tie.model);
  const RunSpec run = resolve(model, {.task = tie.task,
                                      .batch_size = 1,
                                      .sequence_length = 128,
                                      .precision = precision,
                                      .loop = loop,
                                      .optimizer = optimizer})
                          .run;
  const SymbolicRun symbolic = run_symbolically(model, run, registry().device("h100-sxm"));
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
  EXPECT_EQ(of(Category::kOptimizerStates), total_of(accounting, {"optimizer states", rule_of(optimizer).scalars,
                                                                  rule_of(optimizer).tables, "loss scaler"}));
  EXPECT_EQ(of(Category::kAutocastCopies), total_of(accounting, {"autocast copies"}));
  EXPECT_EQ(symbolic.managed_bytes, total_of(accounting, {"paged states"}));
}

// --- the same where tensors differ in how they are stored, and without training ---

struct StoredTie {
  const char* what;
  const char* model;
  Bytes buffers;
  RunOptions options;
};

std::array<Bytes, kCategoryCount> held_before(const Trace& trace, std::size_t end) {
  std::array<Bytes, kCategoryCount> held{};
  for (std::size_t i = 0; i < end; ++i) {
    const Event& event = trace.events[i];
    if (event.kind == EventKind::kEmptyCache) continue;
    const Block& block = trace.blocks[static_cast<std::size_t>(event.block)];
    held[static_cast<std::size_t>(block.category)] +=
        event.kind == EventKind::kAllocate ? block.requested : -block.requested;
  }
  return held;
}

TEST(AccountingTies, OfAdaptersPackedBasesAndInference) {
  constexpr auto kBf16 = Precision::kBf16;
  const auto quantised = [](Quantization kind, std::optional<std::int64_t> rank) {
    RunOptions options{.precision = kBf16, .loop = Loop::kBare};
    options.quantization = kind;
    options.lora_rank = rank;
    if (!rank) {
      options.loop.reset();
      options.inference = Inference{};
    }
    return options;
  };
  RunOptions lora{.precision = kBf16, .loop = Loop::kBare};
  lora.lora_rank = 8;
  RunOptions amp_lora = lora;
  amp_lora.precision = Precision::kAmpBf16;
  const StoredTie ties[] = {
      {"float32 adapters on a bfloat16 base", "llama-3.2-1b", 256, lora},
      {"adapters under autocast", "gpt2", 0, amp_lora},
      {"NF4 with adapters", "llama-3.2-1b", 256, quantised(Quantization::kNf4, 8)},
      {"doubly quantised NF4 with adapters", "tinyllama-1.1b", 256, quantised(Quantization::kNf4Double, 8)},
      {"LLM.int8 with adapters", "mistral-7b", 512, quantised(Quantization::kInt8, 8)},
      {"NF4 of Conv1D", "gpt2", 0, quantised(Quantization::kNf4, 8)},
      {"NF4 alone", "llama-3.2-1b", 256, quantised(Quantization::kNf4, std::nullopt)},
      {"int8 of Conv1D alone", "gpt2", 0, quantised(Quantization::kInt8, std::nullopt)},
      {"inference under autocast", "bert-base", 8192, {.precision = Precision::kAmpBf16, .inference = Inference{}}},
      {"inference in bfloat16", "gpt2", 0, {.precision = kBf16, .inference = Inference{.new_tokens = 4}}},
  };
  for (const StoredTie& tie : ties) {
    SCOPED_TRACE(tie.what);
    const ModelSpec model = registry().model(tie.model);
    RunOptions options = tie.options;
    options.batch_size = 1;
    options.sequence_length = 64;
    const RunSpec run = resolve(model, options).run;
    const DeviceSpec device = registry().device("h100-sxm");
    const Accounting accounting = estimate(model, run, device).accounting;
    const SymbolicRun symbolic = run_symbolically(model, run, device);
    const auto held =
        run.trains() ? held_after_second_step(symbolic.trace) : held_before(symbolic.trace, symbolic.measured_from);
    const auto of = [&](Category category) { return held[static_cast<std::size_t>(category)]; };
    EXPECT_EQ(of(Category::kWeights), total_of(accounting, {"weights", "quantisation constants"}) + tie.buffers);
    EXPECT_EQ(of(Category::kGradients), total_of(accounting, {"gradients"}));
    EXPECT_EQ(of(Category::kOptimizerStates), total_of(accounting, {"optimizer states", "loss scaler"}));
    EXPECT_EQ(of(Category::kAutocastCopies), total_of(accounting, {"autocast copies"}));
  }
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
      // The Trainer takes neither of the two (spec/rules_training.cc).
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
