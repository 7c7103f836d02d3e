// train/parallel/pipeline_schedule: which micro-batch runs when. "F0.1": forward, chunk 0, micro-batch 1; "B" backward;
// "I" and "W" the two halves of a backward. One chunk is not written: "F1". Of whole chunks: "U1" unshard, "R1"
// reshard, "G1" reduce gradients. What torch 2.11 itself plans (pipeline_order_with_comms) was written down for the
// cases of torch.
#include "memcalc/train/parallel/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace memcalc {
namespace {

std::string written(const std::vector<PipelineStep>& steps, std::int64_t chunks) {
  std::string text;
  for (const PipelineStep& step : steps) {
    if (!text.empty()) text += ' ';
    text += "FBIWURG"[static_cast<int>(step.action)];
    const bool of_chunk = step.action >= PipelineAction::kUnshard;
    if (chunks > 1) text += std::to_string(step.chunk) + (of_chunk ? "" : ".");
    if (!of_chunk) text += std::to_string(step.micro_batch);
  }
  return text;
}

struct ScheduleCase {
  const char* name;
  Pipeline pipeline;
  std::int64_t stage;
  const char* steps;
  std::int64_t in_flight;
};

constexpr auto kGpipe = PipelineSchedule::kGpipe;
constexpr auto k1F1B = PipelineSchedule::kOneForwardOneBackward;
constexpr auto kInterleaved = PipelineSchedule::kInterleaved;
constexpr auto kZeroBubble = PipelineSchedule::kZeroBubble;
constexpr auto kZeroBubbleV = PipelineSchedule::kZeroBubbleV;

const ScheduleCase kSchedules[] = {
    {"OneStage", {k1F1B, 1, 1, 3}, 0, "F0 B0 F1 B1 F2 B2", 1},
    {"Gpipe", {kGpipe, 4, 1, 3}, 1, "F0 F1 F2 B0 B1 B2", 3},
    {"FirstStage", {k1F1B, 4, 1, 5}, 0, "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4", 4},
    {"MiddleStage", {k1F1B, 4, 1, 5}, 2, "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4", 2},
    {"LastStage", {k1F1B, 4, 1, 3}, 3, "F0 B0 F1 B1 F2 B2", 1},
    {"FewerMicroBatchesThanStages", {k1F1B, 4, 1, 2}, 0, "F0 F1 B0 B1", 2},
    // Megatron's warm-up: 2 (P - 1 - p) + (V - 1) P = 4 chunk-micro-batches on stage 0 of 2, 2 on stage 1.
    {"InterleavedFirst",
     {kInterleaved, 2, 2, 4},
     0,
     "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3",
     5},
    {"InterleavedLast", {kInterleaved, 2, 2, 2}, 1, "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 B0.0 B0.1", 3},
    {"InterleavedUnevenGroup",
     {kInterleaved, 2, 2, 3},
     1,
     "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F1.2 B0.1 B1.2 B0.2",
     3},
    // microbatch-group-size-per-virtual-pipeline-stage=3: 2 (P - 1 - p) + (V - 1) 3 = 3 to begin with.
    {"InterleavedGroup",
     {kInterleaved, 2, 2, 3, 3},
     1,
     "F0.0 F0.1 F0.2 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 B0.0 B0.1 B0.2",
     4},
    // torch: 10 micro-batches of 4 ranks are two rounds of 5.
    {"InterleavedRoundsOfFive",
     {kInterleaved, 4, 2, 10, 5},
     3,
     "F0.0 F0.1 F0.2 F0.3 F0.4 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3 F1.4 B1.4 F0.5 B0.0 F0.6 B0.1 F0.7 B0.2 F0.8 "
     "B0.3 F0.9 B0.4 F1.5 B1.5 F1.6 B1.6 F1.7 B1.7 F1.8 B1.8 F1.9 B1.9 B0.5 B0.6 B0.7 B0.8 B0.9",
     6},
    {"ZeroBubbleV",
     {kZeroBubbleV, 3, 2, 4},
     1,
     "F0.0 F0.1 F0.2 F1.0 F0.3 F1.1 I1.0 W1.0 F1.2 I1.1 W1.1 I0.0 W0.0 F1.3 I1.2 W1.2 I0.1 W0.1 I1.3 W1.3 I0.2 I0.3 "
     "W0.2 "
     "W0.3",
     6},
    {"ZeroBubbleLast", {kZeroBubble, 3, 1, 4}, 2, "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3", 1},
    {"ZeroBubbleFirst", {kZeroBubble, 3, 1, 4}, 0, "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3", 3},
};

class Schedule : public ::testing::TestWithParam<ScheduleCase> {};

TEST_P(Schedule, RunsInThisOrder) {
  const ScheduleCase& c = GetParam();
  EXPECT_EQ(written(pipeline_steps(c.pipeline, c.stage), c.pipeline.chunks), c.steps);
  EXPECT_EQ(most_in_flight(c.pipeline, c.stage), c.in_flight);
}

INSTANTIATE_TEST_SUITE_P(All, Schedule, ::testing::ValuesIn(kSchedules),
                         [](const auto& info) { return info.param.name; });

TEST(PipelineScheduleTest, ChunksAreGatheredThreeAheadAndReducedOnceTheyAreDone) {
  const Pipeline four{kInterleaved, 2, 4, 4};
  EXPECT_EQ(
      written(pipeline_actions(four, 0), 4),
      "U0 U1 U2 F0.0 F0.1 R0 U3 F1.0 F1.1 R1 U0 F2.0 F2.1 R2 U1 F3.0 F3.1 F0.2 B3.0 F0.3 R0 U2 B3.1 F1.2 B2.0 F1.3 "
      "B2.1 F2.2 B1.0 F2.3 R2 U0 B1.1 R1 U2 F3.2 B0.0 F3.3 B0.1 R0 U1 B3.2 B3.3 G3 R3 U0 B2.2 B2.3 G2 R2 B1.2 B1.3 G1 "
      "R1 B0.2 B0.3 G0 R0");
  EXPECT_EQ(
      written(pipeline_actions({kZeroBubbleV, 2, 2, 3}, 1), 2),
      "U0 U1 F0.0 F1.0 F0.1 F1.1 I1.0 W1.0 F0.2 I0.0 W0.0 F1.2 I1.1 W1.1 I0.1 I1.2 I0.2 W0.1 W1.2 G1 R1 W0.2 G0 R0");
}

TEST(PipelineScheduleTest, EveryMicroBatchRunsOnceEachWayAndForwardFirst) {
  for (const PipelineSchedule schedule : {kGpipe, k1F1B, kInterleaved, kZeroBubble, kZeroBubbleV}) {
    for (const std::int64_t stages : {1, 2, 3, 4, 8}) {
      for (const std::int64_t micro_batches : {1, 2, 3, 7, 8, 16}) {
        const std::int64_t chunks = schedule == kInterleaved ? 3 : schedule == kZeroBubbleV ? 2 : 1;
        for (std::int64_t stage = 0; stage < stages; ++stage) {
          std::map<std::tuple<int, int, int>, int> seen;
          for (const PipelineStep& step : pipeline_steps({schedule, stages, chunks, micro_batches}, stage)) {
            const auto key = [&](PipelineAction action) {
              return std::tuple{static_cast<int>(action), step.chunk, step.micro_batch};
            };
            if (step.action != PipelineAction::kForward) {
              EXPECT_EQ(seen[key(PipelineAction::kForward)], 1);
            }
            if (step.action == PipelineAction::kWeightBackward) {
              EXPECT_EQ(seen[key(PipelineAction::kInputBackward)], 1);
            }
            EXPECT_EQ(++seen[key(step.action)], 1);
          }
          std::erase_if(seen, [](const auto& each) { return each.second == 0; });
          const std::int64_t actions = schedule == kZeroBubble || schedule == kZeroBubbleV ? 3 : 2;
          EXPECT_EQ(static_cast<std::int64_t>(seen.size()), actions * chunks * micro_batches);
        }
      }
    }
  }
}

TEST(PipelineScheduleTest, AShortenedPipelineReachesTheSameMostInFlight) {
  for (const PipelineSchedule schedule : {kGpipe, k1F1B, kInterleaved, kZeroBubble}) {
    for (const std::int64_t stages : {2, 4, 8}) {
      for (const std::int64_t chunks : {1, 2, 4}) {
        if (chunks > 1 && schedule != kInterleaved) continue;
        for (const std::int64_t micro_batches : {8, 64, 512}) {
          const Pipeline whole{schedule, stages, chunks, micro_batches};
          for (std::int64_t stage = 0; stage < stages; ++stage) {
            EXPECT_EQ(most_in_flight(shortened(whole), stage), most_in_flight(whole, stage))
                << stages << " stages, " << chunks << " chunks, " << micro_batches << " micro-batches, stage " << stage;
          }
          if (schedule != kGpipe) {
            EXPECT_LE(shortened(whole).micro_batches, std::max<std::int64_t>(2 * stages, 8) + 2);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace memcalc
