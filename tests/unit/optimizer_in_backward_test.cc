// --optimizer-in-backward: a gradient dies as soon as its parameter has stepped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "memcalc/memcalc.h"
#include "memcalc/train/step.h"
#include "support/typed_run.h"

namespace memcalc {
namespace {

SymbolicRun run_of(const std::string& words) {
  const Question question = test::question_of(test::words_in(words));
  return run_symbolically(question.model, question.run.run, question.device);
}

/// Bytes of gradients that are held at once in the second step.
Bytes gradients_of(const SymbolicRun& run) {
  Bytes now = 0, most = 0;
  for (const Event& event : run.trace.events) {
    if (!event.moves_block()) continue;
    const Block& block = run.trace.blocks[static_cast<std::size_t>(event.block)];
    if (block.category != Category::kGradients) continue;
    now += event.kind == EventKind::kAllocate ? block.requested : -block.requested;
    if (event.step == 1) most = std::max(most, now);
  }
  return most;
}

const std::string kRun = "--model gpt2 --bs 1 --seq 64 --precision bf16 --loop bare --clip-grad 0 ";

TEST(OptimizerInBackward, HoldsTheGradientsOfFewParameters) {
  const SymbolicRun plain = run_of(kRun), within = run_of(kRun + "--optimizer-in-backward");
  EXPECT_EQ(gradients_of(plain), Bytes{2} * 124'439'808);
  // The embedding's alone has 50,257 x 768; the head shares it, so it has gathered a gradient of its own before.
  EXPECT_LT(gradients_of(within), Bytes{2} * 3 * 50'257 * 768);
  const auto requests = [](const SymbolicRun& run) {
    return std::count_if(run.trace.events.begin(), run.trace.events.end(), [&](const Event& event) {
      return event.kind == EventKind::kAllocate && event.step == 1 &&
             run.trace.blocks[static_cast<std::size_t>(event.block)].category == Category::kGradients;
    });
  };
  EXPECT_EQ(requests(within), requests(plain)) << "each is made all the same";
}

TEST(OptimizerInBackward, HasTheSameStates) {
  for (const char* optimizer : {"adamw", "paged-adamw-8bit", "sgd"}) {
    SCOPED_TRACE(optimizer);
    const auto states = [&](const std::string& words) {
      const SymbolicRun run = run_of(kRun + "--optimizer " + optimizer + words);
      Bytes sum = run.managed_bytes;
      for (const Block& block : run.trace.blocks) {
        // Less the tables of bitsandbytes, which each optimizer has for itself.
        if (block.category == Category::kOptimizerStates && block.requested != 1024) sum += block.requested;
      }
      return sum;
    };
    EXPECT_EQ(states(""), states(" --optimizer-in-backward"));
  }
}

}  // namespace
}  // namespace memcalc
