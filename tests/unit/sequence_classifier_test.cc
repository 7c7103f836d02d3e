// Classifiers on decoders: what the head adds and what it leaves out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "memcalc/memcalc.h"
#include "memcalc/train/step.h"
#include "support/paths.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

struct Case {
  const char* model;
  std::int64_t width;  // of what the head sees
};

void PrintTo(const Case& each, std::ostream* out) { *out << each.model; }

class Classifiers : public ::testing::TestWithParam<Case> {
 protected:
  static SymbolicRun run_of(const ModelSpec& model, Task task, const RunOptions& base) {
    static const DeviceSpec device = SpecRegistry(test::specs_dir().string()).device("h100-sxm");
    RunOptions options = base;
    options.weights_dtype = DType::kFloat32;
    options.task = task;
    return run_symbolically(model, resolve(model, options).run, device);
  }
};

// The score of two labels is a matrix without a bias, the last parameter; no vocabulary is scored.
TEST_P(Classifiers, ScoreEveryTokenAndKeepTheLast) {
  const ModelSpec model = registry().model(GetParam().model, {.layers = 1});
  for (const Loop loop : {Loop::kBare, Loop::kTrainer}) {
    const RunOptions options{.batch_size = 4, .sequence_length = 32, .loop = loop};
    const SymbolicRun run = run_of(model, Task::kSequenceClassification, options);
    const ParameterInfo& last = run.parameters.back();
    EXPECT_EQ(last.name, "score.weight");
    EXPECT_EQ(last.shape, (Shape{2, GetParam().width}));
    const auto is_head = [](const ParameterInfo& each) { return each.name.find("lm_head") != std::string::npos; };
    EXPECT_EQ(std::count_if(run.parameters.begin(), run.parameters.end(), is_head), 0);
    // 4 x 32 scores of 2 labels in float32; pooled: 4 x 2.
    const auto asks_for = [&](Bytes bytes, const char* op) {
      return std::any_of(run.trace.events.begin(), run.trace.events.end(), [&](const Event& event) {
        return event.kind == EventKind::kAllocate && event.op != nullptr && std::string(event.op->name) == op &&
               run.trace.blocks[static_cast<std::size_t>(event.block)].requested == bytes;
      });
    };
    EXPECT_TRUE(asks_for(4 * 2 * 4, "aten::index"));
    EXPECT_TRUE(asks_for(4 * 8, "aten::argmax"));
  }
}

INSTANTIATE_TEST_SUITE_P(Decoders, Classifiers,
                         ::testing::Values(Case{"gpt2", 768}, Case{"opt-350m", 512}, Case{"pythia-70m", 512},
                                           Case{"llama-3.2-1b", 2048}, Case{"gemma-2-2b", 2304}, Case{"phi-2", 2560},
                                           Case{"qwen3-0.6b", 1024}));

}  // namespace
}  // namespace memcalc
