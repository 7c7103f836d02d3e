// train/parallel/pipeline_schedule: which micro-batch runs when. "F0.1": forward, chunk 0, micro-batch 1; "B" backward;
// "I" and "W" the two halves of a backward. One chunk is not written: "F1".
#include "memcalc/train/parallel/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

namespace memcalc {
namespace {

std::string written(const Pipeline& pipeline, std::int64_t stage) {
  std::string text;
  for (const PipelineStep& step : pipeline_steps(pipeline, stage)) {
    if (!text.empty()) text += ' ';
    text += "FBIW"[static_cast<int>(step.action)];
    if (pipeline.chunks > 1) text += std::to_string(step.chunk) + ".";
    text += std::to_string(step.micro_batch);
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
    {"ZeroBubbleLast", {kZeroBubble, 3, 1, 4}, 2, "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3", 1},
    {"ZeroBubbleFirst", {kZeroBubble, 3, 1, 4}, 0, "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3", 3},
};

class Schedule : public ::testing::TestWithParam<ScheduleCase> {};

TEST_P(Schedule, RunsInThisOrder) {
  const ScheduleCase& c = GetParam();
  EXPECT_EQ(written(c.pipeline, c.stage), c.steps);
  EXPECT_EQ(most_in_flight(c.pipeline, c.stage), c.in_flight);
}

INSTANTIATE_TEST_SUITE_P(All, Schedule, ::testing::ValuesIn(kSchedules),
                         [](const auto& info) { return info.param.name; });

TEST(PipelineScheduleTest, EveryMicroBatchRunsOnceEachWayAndForwardFirst) {
  for (const PipelineSchedule schedule : {kGpipe, k1F1B, kInterleaved, kZeroBubble}) {
    for (const std::int64_t stages : {1, 2, 3, 4, 8}) {
      for (const std::int64_t micro_batches : {1, 2, 3, 7, 8, 16}) {
        const std::int64_t chunks = schedule == kInterleaved ? 3 : 1;
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
          const std::int64_t actions = schedule == kZeroBubble ? 3 : 2;
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
