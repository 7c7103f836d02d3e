// torch.compile of recorded programs: which of their operators are fused into what reads them, and what breaks the
// graph. Whole models: tests/measured/program_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/spec/program.h"
#include "memcalc/train/step.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

using ::testing::HasSubstr;

constexpr std::int64_t kBatch = 4, kChannels = 96, kWidth = 1024;
constexpr Bytes kHidden = kBatch * kChannels * kWidth * 4;  // of the product, in float32

/// A product (value 1), then `calls`, which make value 2; its sum is the loss.
Program program_of(const std::string& calls, const std::string& source = "MyModule") {
  const std::string text = R"({"format": "memcalc.program", "version": 1, "name": "calls", "task": "other",
    "source": {"class": ")" +
                           source + R"("}, "symbols": {"batch": {"default": 4}},
    "inputs": [{"name": "x", "shape": ["batch", 96, 256], "dtype": "weights"}],
    "parameters": [{"name": "weight", "shape": [1024, 256], "dtype": "weights"},
                   {"name": "scale", "shape": [96], "dtype": "weights"},
                   {"name": "shift", "shape": [96], "dtype": "weights"}], "buffers": [],
    "functions": [{"inputs": 0, "keywords": ["x"], "results": [99], "body": [
      ["call", "torch.nn.functional.linear", [{"v": 0}, {"p": "weight"}, null], {}, [1]], )" +
                           calls + R"(,
      ["drop", [1]], ["call", "torch.Tensor.sum", [{"v": 2}], {}, [99]], ["drop", [2]]]}],
    "forwards": [{"mode": "train", "inputs": ["x"], "gradients": true, "function": 0, "outputs": {"output": 99}}],
    "assumptions": [], "opaque": []})";
  return read_program(JsonDocument::parse(text, "calls").root());
}

std::string call(const std::string& function, const std::string& arguments = "") {
  return R"(["call", ")" + function + R"(", [{"v": 1})" + arguments + "], {}, [2]]";
}

/// Of its registry, card and model, which are read once: under the sanitizers that takes as long as all calls together.
Trace compiled(Program program, CompiledParts parts = CompiledParts::kModel) {
  static const DeviceSpec device = registry().device("h100-sxm");
  static const ModelSpec recorded =
      registry().model((test::measured_dir() / "programs/custom_functions.json.gz").string());
  ModelSpec model = recorded;
  model.architecture = ProgramSpec{std::make_shared<Program>(std::move(program))};
  RunOptions options{.precision = Precision::kFp32, .loop = Loop::kBare, .compile = true};
  options.batch_size = kBatch;
  options.compiled_parts = parts;
  return run_symbolically(model, resolve(model, options).run, device).trace;
}

/// How many tensors as large as the product the last step makes.
int large_tensors(const Trace& trace, Phase phase) {
  int count = 0;
  for (const Event& event : trace.events) {
    if (event.kind != EventKind::kAllocate || event.phase != phase || event.step != trace.events.back().step) continue;
    if (trace.blocks[static_cast<std::size_t>(event.block)].requested >= kHidden) ++count;
  }
  return count;
}

/// Nothing but the product's result is written in forward. Its gradient takes its place, or one of its own.
void expect_fused(const std::string& calls) {
  SCOPED_TRACE(calls);
  const Trace trace = compiled(program_of(calls));
  EXPECT_EQ(large_tensors(trace, Phase::kForward), 1);
  EXPECT_LE(large_tensors(trace, Phase::kBackward), 1);
}

TEST(CompiledPrograms, ComputeElementByElementWhereTheResultIsRead) {
  for (const char* name : {"abs", "cos", "erf", "exp", "expm1", "log", "log1p", "reciprocal", "sin", "sqrt", "rsqrt",
                           "sigmoid", "tanh", "neg"}) {
    expect_fused(call(std::string("torch.Tensor.") + name));
  }
  expect_fused(call("torch.nn.functional.logsigmoid"));
  expect_fused(call("torch.Tensor.flip", ", [1]"));
  expect_fused(call("torch.maximum", R"(, {"v": 1})"));
  expect_fused(call("torch.nn.functional.mse_loss", R"(, {"v": 1})"));
}

TEST(CompiledPrograms, ReadReducedTensorsOnce) {
  for (const char* name : {"amax", "logsumexp", "var", "std", "mean", "norm"}) {
    const std::string dim = std::string(name) == "norm" ? ", 2, -1" : ", -1";
    expect_fused(call(std::string("torch.Tensor.") + name, dim));
  }
}

TEST(CompiledPrograms, NormaliseWithAndWithoutWeights) {
  expect_fused(call("torch.nn.functional.group_norm", R"(, 8, {"p": "scale"}, {"p": "shift"})"));
  expect_fused(call("torch.nn.functional.group_norm", ", 8"));
  expect_fused(call("torch.nn.functional.layer_norm", ", [1024]"));
}

TEST(CompiledPrograms, ViewPartsWithoutACopy) {
  expect_fused(R"(["call", "torch.Tensor.unbind", [{"v": 1}], {}, [3, 4, 5, 6]], ["call", "torch.Tensor.add", [{"v": 3},
                 {"v": 5}], {}, [2]], ["drop", [3, 4, 5, 6]])");
}

TEST(CompiledPrograms, GatherAndScatter) {
  const std::string places = R"(["call", "torch.arange", [96], {"device": {"device": "cuda"}}, [3]], )";
  // What is gathered is read where it lies; its gradient is scattered by a kernel, from one written for it or not.
  const Trace gathered = compiled(program_of(places + call("torch.Tensor.index_select", R"(, 1, {"v": 3})")));
  EXPECT_EQ(large_tensors(gathered, Phase::kForward), 1);
  const Trace added = compiled(program_of(places + call("torch.Tensor.index_add", R"(, 1, {"v": 3}, {"v": 1})")));
  EXPECT_EQ(large_tensors(added, Phase::kForward), 2) << "the kernel writes its result";
}

TEST(CompiledPrograms, AreRefusedWherePythonReadsAValue) {
  const auto refusal = [](const std::string& calls, CompiledParts parts = CompiledParts::kModel) {
    return error_text([&] { (void)compiled(program_of(calls), parts); });
  };
  const std::string read = R"(["call", "torch.Tensor.item", [{"v": 1}], {}, []], )";
  EXPECT_THAT(refusal(read + call("torch.Tensor.abs")), HasSubstr("item needs a value of the card"));
  const std::string chosen = R"(["call", "torch.Tensor.gt", [{"v": 1}, 0], {}, [3]], ["call",
    "torch.Tensor.__getitem__", [{"v": 1}, {"v": 3}], {}, [2], [[[1000], {"d": "weights"}]]])";
  EXPECT_THAT(refusal(chosen), HasSubstr("a boolean index chooses by values"));
  EXPECT_THAT(refusal(call("torch.Tensor.abs"), CompiledParts::kLayers), HasSubstr("has no layers"));
}

/// The program as torch.compile traces it: `calls` say where its graphs end and begin.
Program broken_program_of(const std::string& calls) {
  Program program = program_of(calls);
  std::vector<ProgramInstruction>& items = program.functions.at(0).body.items;
  items.insert(items.begin(), ProgramGraph{});
  items.emplace_back(ProgramGraph{false, "returns"});
  program.forwards.front().runs_eagerly = false;
  program.forwards.front().runs_compiled = true;
  program.forwards.front().graphs = 2;
  return program;
}

TEST(CompiledPrograms, AreGraphsWithEagerCallsBetweenThem) {
  const std::string first = R"(["call", "torch.Tensor.abs", [{"v": 1}], {}, [3]], ["break", "Tensor.item"], )";
  const std::string second = R"(["graph"], ["call", "torch.Tensor.exp", [{"v": 3}], {}, [4]], )"
                             R"(["call", "torch.Tensor.sin", [{"v": 4}], {}, [2]], ["drop", [3, 4]])";
  const Trace trace = compiled(broken_program_of(first + second));
  EXPECT_EQ(large_tensors(trace, Phase::kForward), 2) << "what the first graph hands to the second one is written";
  EXPECT_GE(large_tensors(trace, Phase::kBackward), 1) << "and its gradient";
  const std::string read = R"(["call", "torch.Tensor.item", [{"v": 3}], {}, []], )";
  EXPECT_EQ(large_tensors(compiled(broken_program_of(first + read + second)), Phase::kForward), 2);
  const std::string eager = R"(["call", "torch.Tensor.neg", [{"v": 3}], {}, [5]], ["drop", [5]], )";
  EXPECT_EQ(large_tensors(compiled(broken_program_of(first + eager + second)), Phase::kForward), 3);
}

TEST(CompiledPrograms, HaveGraphsThatEndWhereTheyBegin) {
  const auto refusal = [](const std::string& calls) {
    return error_text([&] { (void)compiled(broken_program_of(calls + call("torch.Tensor.abs"))); });
  };
  EXPECT_THAT(refusal(R"(["break", "here"], )"), HasSubstr("a graph ends that has not begun"));
  EXPECT_THAT(refusal(R"(["graph"], )"), HasSubstr("a graph begins and does not end"));
  EXPECT_THAT(refusal(R"(["grad", false], ["break", "here"], ["graph"], ["grad_end"], )"),
              HasSubstr("pieces of a region are not modelled"));
}

TEST(CompiledPrograms, OfTransformersAreThoseThatWereRecordedCompiled) {
  const auto refusal = [](Program program) { return error_text([&] { (void)compiled(std::move(program)); }); };
  const std::string library = "transformers.models.vit.modeling_vit.ViTModel";
  EXPECT_THAT(refusal(program_of(call("torch.Tensor.abs"), library)), HasSubstr("what it traces was not recorded"));
  Program traced = program_of(call("torch.Tensor.abs"), library);
  traced.forwards.front().runs_compiled = true;
  EXPECT_EQ(large_tensors(compiled(traced), Phase::kForward), 1);
}

}  // namespace
}  // namespace memcalc
