// train/parallel/micro_batch_trace: copied micro-batches ask for what executed ones would have.
#include "memcalc/train/parallel/micro_batch_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "support/tape_bench.h"

namespace memcalc {
namespace {

constexpr Operator kForward{"forward"}, kBackward{"backward"}, kScratch{"scratch"}, kForGood{"for_good"};

/// What a loop does: forwards keep one tensor each, backwards drop it and leave a variable for the next; the first
/// backward of all makes a buffer that stays.
class MicroBatches {
 public:
  explicit MicroBatches(Tape& tape) : tape_(tape) {}
  void run(const PipelineStep& step) {
    const Bytes size = 512 * (step.chunk + 1);
    if (step.action == PipelineAction::kForward) {
      tape_.memory.scratch(size, kScratch);
      kept_[{step.chunk, step.micro_batch}] = tape_.empty({size}, DType::kUInt8, kForward);
      return;
    }
    if (!buffer_.defined()) buffer_ = tape_.empty({64}, DType::kUInt8, kForGood);
    variable_[step.chunk] = tape_.empty({size}, DType::kUInt8, kBackward);
    kept_.erase({step.chunk, step.micro_batch});
  }
  void end() { variable_.clear(); }

 private:
  Tape& tape_;
  std::map<std::pair<int, int>, Tensor> kept_;
  std::map<int, Tensor> variable_;
  Tensor buffer_;
};

/// Events with the blocks numbered by their first appearance, so that only their order counts.
std::string events_of(const Pipeline& pipeline, std::int64_t stage, std::int32_t executed) {
  test::TapeBench bench;
  MicroBatches loop(bench.tape);
  MicroBatchTrace trace(bench.tape, pipeline, executed);
  const auto chunks = static_cast<std::int32_t>(pipeline.chunks);
  for (std::int32_t m = 0; m < trace.executed(); ++m) {
    for (std::int32_t c = 0; c < chunks; ++c) {
      const PipelineStep step{PipelineAction::kForward, c, m};
      trace.record(step, [&] { loop.run(step); });
    }
  }
  for (std::int32_t m = 0; m < trace.executed(); ++m) {
    for (std::int32_t c = chunks; c-- > 0;) {
      const PipelineStep step{PipelineAction::kBackward, c, m};
      trace.record(step, [&] { loop.run(step); });
    }
  }
  trace.record_end([&] { loop.end(); });
  trace.stitch(pipeline_steps(pipeline, stage));
  std::map<BlockId, int> names;
  std::string text;
  for (const Event& event : bench.tape.memory.trace.events) {
    const auto [name, is_new] = names.emplace(event.block, static_cast<int>(names.size()));
    text += event.kind == EventKind::kAllocate ? " +" : " -";
    text += std::to_string(name->second) + ":" +
            std::to_string(bench.tape.memory.trace.blocks[static_cast<std::size_t>(event.block)].requested);
  }
  return text;
}

TEST(MicroBatchTraceTest, CopiesAskForWhatExecutedMicroBatchesWould) {
  using enum PipelineSchedule;
  const Pipeline pipelines[] = {{kOneForwardOneBackward, 1, 1, 7},
                                {kOneForwardOneBackward, 4, 1, 9},
                                {kGpipe, 4, 1, 6},
                                {kInterleaved, 2, 2, 8},
                                {kOneForwardOneBackward, 2, 1, 2}};
  for (const Pipeline& pipeline : pipelines) {
    for (std::int64_t stage = 0; stage < pipeline.stages; ++stage) {
      const std::string copied = events_of(pipeline, stage, MicroBatchTrace::kExecuted);
      const std::string executed = events_of(pipeline, stage, static_cast<std::int32_t>(pipeline.micro_batches));
      EXPECT_EQ(copied, executed) << pipeline.stages << " stages, stage " << stage;
      EXPECT_FALSE(copied.empty());
    }
  }
}

TEST(MicroBatchTraceTest, NothingButWhatStaysForGoodIsLeft) {
  const Pipeline pipeline{PipelineSchedule::kOneForwardOneBackward, 3, 1, 10};
  const std::string events = events_of(pipeline, 0, MicroBatchTrace::kExecuted);
  EXPECT_EQ(std::count(events.begin(), events.end(), '+'), std::count(events.begin(), events.end(), '-') + 1);
}

}  // namespace
}  // namespace memcalc
