// mode="reduce-overhead": what each of the first three steps asks for, and from where. Real runs: compile_rows_test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "memcalc/alloc/replay.h"
#include "memcalc/memcalc.h"
#include "memcalc/symbolic/compiled_code.h"
#include "memcalc/symbolic/cuda_graph_streams.h"
#include "memcalc/train/step.h"
#include "support/error_text.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SymbolicRun run_of(const char* name, CompileMode mode) {
  ModelSpec model = registry().model(name);
  model.architecture.set_layers(2);
  const RunOptions options{.batch_size = 2,
                           .sequence_length = 512,
                           .precision = Precision::kBf16,
                           .loop = Loop::kBare,
                           .compile = true,
                           .compile_mode = mode};
  return run_symbolically(model, resolve(model, options).run, registry().device("h200-sxm"));
}

/// Steps in which something is asked for on the stream.
std::set<int> steps_on(const Trace& trace, CudaStream stream) {
  std::set<int> steps;
  for (const Event& event : trace.events) {
    if (event.kind != EventKind::kAllocate) continue;
    if (trace.blocks[static_cast<std::size_t>(event.block)].stream == stream) steps.insert(event.step);
  }
  return steps;
}

TEST(CudaGraphs, WarmUpAndRecordingTakeMemoryFromThePoolAndAReplayTakesNone) {
  const Trace trace = run_of("llama-3.2-1b", CompileMode::kReduceOverhead).trace;
  EXPECT_THAT(steps_on(trace, kGraphPoolStream), ElementsAre(0, 1));
  EXPECT_THAT(steps_on(trace, kGraphStream), ElementsAre(0)) << "the generator's seed and offset";
  EXPECT_THAT(steps_on(run_of("llama-3.2-1b", CompileMode::kDefault).trace, kGraphPoolStream), ElementsAre());
}

TEST(CudaGraphs, TheCacheIsEmptiedForTheTreeAndForEachRecording) {
  const auto emptied = [](CompileMode mode) {
    const Trace trace = run_of("llama-3.2-1b", mode).trace;
    return std::count_if(trace.events.begin(), trace.events.end(),
                         [](const Event& event) { return event.kind == EventKind::kEmptyCache && event.step >= 0; });
  };
  EXPECT_EQ(emptied(CompileMode::kDefault), 0);
  EXPECT_EQ(emptied(CompileMode::kReduceOverhead), 3);
}

TEST(CudaGraphs, WorkspacesOfProductsEndWithEachWarmUpAndRecording) {
  const Trace trace = run_of("llama-3.2-1b", CompileMode::kReduceOverhead).trace;
  std::set<BlockId> taken, given_back;
  for (const Event& event : trace.events) {
    if (event.op != nullptr && std::string_view(event.op->name) == "cublas_workspace") taken.insert(event.block);
    if (event.kind == EventKind::kFree && taken.contains(event.block)) given_back.insert(event.block);
  }
  EXPECT_EQ(taken.size(), 4U) << "forward and backward, twice";
  EXPECT_EQ(given_back, taken);
}

TEST(CudaGraphs, GradientsOfAReplayAreNoMemoryOfTheAllocator) {
  const SymbolicRun run = run_of("llama-3.2-1b", CompileMode::kReduceOverhead);
  const ReplayResult result = replay(run.trace, {.private_stream = kGraphPoolStream});
  Bytes weights = 0;
  for (const ParameterInfo& each : run.parameters) weights += each.elements * size_of(each.dtype);
  EXPECT_LT(result.allocated_at_end, 3.1 * static_cast<double>(weights)) << "weights and two moments";
  EXPECT_GT(result.reserved_at_end, 4 * weights) << "the pool stays";
  EXPECT_EQ(run.trace.events[result.peak_event].step, 1) << "recording beside the optimizer's states";
}

TEST(CudaGraphs, AReplayLaunchesNoKernelOfTheGraphByItself) {
  for (const Kernel& kernel : run_of("llama-3.2-1b", CompileMode::kReduceOverhead).kernels) {
    EXPECT_TRUE(!is_of_compiled_code(kernel) || is_replayed(kernel));
  }
}

TEST(CudaGraphs, OfAModelWhoseGraphBreaksAreRefused) {
  EXPECT_THAT(error_text([] { (void)run_of("gpt2", CompileMode::kReduceOverhead); }), HasSubstr("breaks"));
}

}  // namespace
}  // namespace memcalc
