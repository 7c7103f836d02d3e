// A traced module's run: a trace written by hand, whose memory at each point is a sum that one can do in one's head.
#include "memcalc/train/traced_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "memcalc/memcalc.h"
#include "support/paths.h"

namespace memcalc {
namespace {

constexpr Bytes kWeight = 4 * 1024 * 256, kActivation = 4 * kMiB, kInput = 2 * kMiB, kBuffer = 512;

TracedEvent allocate(std::int32_t block, Bytes bytes, Category category) {
  TracedEvent event;
  event.block = block;
  event.operator_index = 0;
  event.bytes = bytes;
  event.category = category;
  return event;
}

TracedEvent about(TracedEventKind kind, std::int32_t block, std::int32_t parameter = -1) {
  TracedEvent event;
  event.kind = kind;
  event.block = block;
  event.parameter = parameter;
  return event;
}

/// y = x w: an activation that backward needs, the loss, the gradient of w.
TracedStep one_layer() {
  TracedStep step;
  step.name = "Layer";
  step.parameters = {{"weight", {1024, 256}, DType::kFloat32, true}};
  step.buffers = {kBuffer};
  step.inputs = {kInput};
  step.batch_size = 8;
  step.operators = {"aten::mm"};
  step.block_count = 3;
  step.loss = 1;
  TracedEvent product;
  product.kind = TracedEventKind::kCompute;
  product.operator_index = 0;
  product.flops = 1000;
  product.is_contraction = true;
  step.forward = {product, allocate(0, kActivation, Category::kActivations), allocate(1, 4, Category::kTemporaries)};
  step.backward = {product, allocate(2, kWeight, Category::kGradients), about(TracedEventKind::kGradient, 2, 0),
                   about(TracedEventKind::kFree, 0)};
  return step;
}

DeviceSpec card() { return SpecRegistry(test::specs_dir().string()).device("h100-sxm"); }

Report run(const RunOptions& options, const TracedStep& step = one_layer()) { return estimate(step, options, card()); }

Bytes at_peak(const Report& report, Category category) {
  return report.memory.categories_at_peak[static_cast<std::size_t>(category)];
}

TEST(TracedRun, HoldsWhatTheTraceHolds) {
  const Report report = run({.optimizer = Optimizer::kSgd});
  EXPECT_EQ(report.parameters_total, 1024 * 256);
  EXPECT_EQ(at_peak(report, Category::kWeights), kWeight + kBuffer);
  EXPECT_EQ(at_peak(report, Category::kInputs), kInput);
  EXPECT_EQ(at_peak(report, Category::kActivations), kActivation);  // the peak is where the gradient is born
  EXPECT_EQ(at_peak(report, Category::kGradients), kWeight);
  EXPECT_EQ(at_peak(report, Category::kOptimizerStates), 0);
  EXPECT_EQ(report.memory.exact_peak, kWeight + kBuffer + kInput + kActivation + kWeight + 4);  // and the loss
}

TEST(TracedRun, TheOptimizerIsThisLibrarys) {
  // Two moments and a step counter on the host (foreach): from the second step on they lie beside the activation.
  const Report report = run({.optimizer = Optimizer::kAdamWForeach});
  EXPECT_EQ(at_peak(report, Category::kOptimizerStates), 2 * kWeight);
}

TEST(TracedRun, AccumulationKeepsOneGradient) {
  const Report report = run({.optimizer = Optimizer::kSgd, .accumulation_steps = 5});
  // The second micro-batch's gradient lies beside the first's until it is added.
  EXPECT_EQ(at_peak(report, Category::kGradients), 2 * kWeight);
  double forward = 0;
  for (const FlopRow& row : report.flops)
    forward += row.operator_class == OperatorClass::kContraction ? row.forward : 0;
  EXPECT_EQ(forward, 5 * 1000);
}

TEST(TracedRun, AGradientWithinALargerBlockKeepsTheBlock) {
  TracedStep step = one_layer();
  step.backward[1].bytes = 3 * kWeight;
  EXPECT_EQ(at_peak(run({.optimizer = Optimizer::kSgd}, step), Category::kGradients), 3 * kWeight);
}

TEST(TracedRun, AConvolutionTakesCudnnsWorkspaceForAMoment) {
  TracedStep step = one_layer();
  TracedConvolution call{.pass = TracedConvolutionPass::kInputGradient,
                         .input = {16, 64, 56, 56},
                         .weight = {64, 64, 3, 3},
                         .output = {16, 64, 56, 56},
                         .padding = 1};
  step.backward.insert(step.backward.begin() + 2, about(TracedEventKind::kWorkspace, 0));  // beside the gradient
  step.convolutions = {call};
  EXPECT_EQ(at_peak(run({.optimizer = Optimizer::kSgd}, step), Category::kWorkspaces), 35651584);  // specs/cudnn
  step.convolutions[0].groups = 64;  // PyTorch's own kernel, which takes none
  step.convolutions[0].weight = {64, 1, 3, 3};
  EXPECT_EQ(at_peak(run({.optimizer = Optimizer::kSgd}, step), Category::kWorkspaces), 0);
}

struct Refused {
  const char* name;
  RunOptions options;
  std::function<void(TracedStep&)> change;
  const char* message;
};

TEST(TracedRun, RefusesWhatItWasNotTracedFor) {
  const auto nothing = [](TracedStep&) {};
  const Refused cases[] = {
      {"batch", {.batch_size = 4}, nothing, "the module was traced with a batch of 8, not 4"},
      {"precision", {.precision = Precision::kBf16}, nothing, "the module was traced in fp32, not bf16"},
      {"loop", {.loop = Loop::kTrainer}, nothing, "a plain loop only"},
      {"loss", {}, [](TracedStep& s) { s.loss = 3; }, "refers to what it does not have"},
      {"block", {}, [](TracedStep& s) { s.backward.back().block = 7; }, "refers to what it does not have"},
      {"parameter", {}, [](TracedStep& s) { s.backward[2].parameter = 1; }, "refers to what it does not have"},
      {"operator", {}, [](TracedStep& s) { s.operators.clear(); }, "refers to what it does not have"},
      {"convolution",
       {},
       [](TracedStep& s) { s.forward.push_back(about(TracedEventKind::kWorkspace, 0)); },
       "refers to what it does not have"},
      {"rank", {}, [](TracedStep& s) { s.parameters[0].shape.assign(9, 1); }, "more than 6 dimensions"},
      {"no loss", {}, [](TracedStep& s) { s.forward.pop_back(); }, "leaves no loss"},
      {"negative size", {}, [](TracedStep& s) { s.parameters[0].shape[0] = -1; }, "a size that no tensor has"},
      {"negative input", {}, [](TracedStep& s) { s.inputs[0] = -1; }, "a size that no tensor has"},
      {"no batch", {}, [](TracedStep& s) { s.batch_size = 0; }, "a size that no tensor has"},
      {"no groups",
       {},
       [](TracedStep& s) {
         s.convolutions.push_back({.input = {1, 1, 1, 1}, .weight = {1, 1, 1, 1}, .output = {1, 1, 1, 1}, .groups = 0});
       },
       "a size that no tensor has"},
  };
  for (const Refused& each : cases) {
    SCOPED_TRACE(each.name);
    TracedStep step = one_layer();
    each.change(step);
    try {
      static_cast<void>(run(each.options, step));
      ADD_FAILURE() << "was answered";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(each.message));
    }
  }
}

}  // namespace
}  // namespace memcalc
