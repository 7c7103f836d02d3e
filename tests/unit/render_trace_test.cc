// report/render_trace: the event stream as TSV and as a memory snapshot, whole outputs.
#include "memcalc/report/render_trace.h"

#include <gtest/gtest.h>

#include <string>

#include "memcalc/base/error.h"

namespace memcalc {
namespace {

constexpr Operator kMm{"aten::mm"};
constexpr Operator kMmBackward{"MmBackward0"};

// A weight at construction; in each of two steps an activation in forward, freed by its backward node, and a block
// of 24 MiB that a Python variable drops.
Trace two_steps() {
  Trace trace;
  const auto allocate = [&](Bytes bytes, Phase phase, int step, const Operator* op, const Operator* node) {
    trace.blocks.push_back({bytes, Category::kTemporaries});
    trace.events.push_back({op, node, static_cast<std::int32_t>(trace.blocks.size()) - 1, EventKind::kAllocate, phase,
                            static_cast<std::int16_t>(step)});
  };
  const auto free = [&](std::int32_t block, Phase phase, int step, const Operator* node) {
    trace.events.push_back({nullptr, node, block, EventKind::kFree, phase, static_cast<std::int16_t>(step)});
  };
  allocate(1000, Phase::kBuild, -1, nullptr, nullptr);
  trace.events.push_back({.kind = EventKind::kEmptyCache});
  for (int step = 0; step < 2; ++step) {
    const std::int32_t first = 1 + 2 * step;
    allocate(512, Phase::kForward, step, &kMm, nullptr);
    allocate(24 * kMiB, Phase::kBackward, step, &kMm, &kMmBackward);
    free(first, Phase::kBackward, step, &kMmBackward);
    free(first + 1, Phase::kDelete, step, nullptr);
  }
  return trace;
}

std::string rendered(const TraceOptions& options) {
  const Trace trace = two_steps();
  return render_trace(trace, replay(trace, {.record_timeline = true}), options);
}

TEST(RenderTrace, TsvOfTheLastStep) {
  // 1024: the weight, rounded; reserved: 2 MiB for small blocks, 24 MiB for the large one.
  EXPECT_EQ(rendered({}),
            "# phase\tdelta_bytes\tallocated\treserved\top_chain(outer>inner)\tinner_input_dims\n"
            "forward\t512\t1536\t27262976\taten::mm\t[]\n"
            "backward\t25165824\t25167360\t27262976\tMmBackward0>aten::mm\t[]\n"
            "backward\t-512\t25166848\t27262976\tMmBackward0\t[]\n"
            "del\t-25165824\t1024\t27262976\t\t\n");
}

TEST(RenderTrace, TsvOfAllSteps) {
  const std::string text = rendered({.all_steps = true});
  EXPECT_EQ(text.substr(text.find('\n') + 1),
            "# construction\n"
            "build\t1024\t1024\t2097152\t\t\n"
            "# empty_cache\n"
            "# step 0\n"
            "forward\t512\t1536\t2097152\taten::mm\t[]\n"
            "backward\t25165824\t25167360\t27262976\tMmBackward0>aten::mm\t[]\n"
            "backward\t-512\t25166848\t27262976\tMmBackward0\t[]\n"
            "del\t-25165824\t1024\t27262976\t\t\n"
            "# step 1\n"
            "forward\t512\t1536\t27262976\taten::mm\t[]\n"
            "backward\t25165824\t25167360\t27262976\tMmBackward0>aten::mm\t[]\n"
            "backward\t-512\t25166848\t27262976\tMmBackward0\t[]\n"
            "del\t-25165824\t1024\t27262976\t\t\n");
}

TEST(RenderTrace, SnapshotOpensWithWhatIsAlive) {
  EXPECT_EQ(rendered({.format = TraceFormat::kSnapshot}),
            "{\"segments\": [], \"device_traces\": [[\n"
            "{\"action\": \"alloc\", \"addr\": 139637976727552, \"size\": 1024, \"stream\": 0, \"time_us\": 0, "
            "\"frames\": [{\"name\": \"\", \"filename\": \"build\", \"line\": 0}]},\n"
            "{\"action\": \"alloc\", \"addr\": 139638001894912, \"size\": 512, \"stream\": 0, \"time_us\": 1, "
            "\"frames\": [{\"name\": \"aten::mm\", \"filename\": \"forward\", \"line\": 2}]},\n"
            "{\"action\": \"alloc\", \"addr\": 139638001895424, \"size\": 25165824, \"stream\": 0, \"time_us\": 2, "
            "\"frames\": [{\"name\": \"MmBackward0>aten::mm\", \"filename\": \"backward\", \"line\": 2}]},\n"
            "{\"action\": \"free_requested\", \"addr\": 139638001894912, \"size\": 512, \"stream\": 0, \"time_us\": 3, "
            "\"frames\": [{\"name\": \"MmBackward0\", \"filename\": \"backward\", \"line\": 2}]},\n"
            "{\"action\": \"free_completed\", \"addr\": 139638001894912, \"size\": 512, \"stream\": 0, \"time_us\": 4, "
            "\"frames\": [{\"name\": \"MmBackward0\", \"filename\": \"backward\", \"line\": 2}]},\n"
            "{\"action\": \"free_requested\", \"addr\": 139638001895424, \"size\": 25165824, \"stream\": 0, "
            "\"time_us\": 5, \"frames\": [{\"name\": \"\", \"filename\": \"del\", \"line\": 2}]},\n"
            "{\"action\": \"free_completed\", \"addr\": 139638001895424, \"size\": 25165824, \"stream\": 0, "
            "\"time_us\": 6, \"frames\": [{\"name\": \"\", \"filename\": \"del\", \"line\": 2}]}\n"
            "]]}\n");
}

TEST(RenderTrace, AnEmptyTrace) {
  EXPECT_EQ(render_trace({}, {}, {.format = TraceFormat::kSnapshot}),
            "{\"segments\": [], \"device_traces\": [[\n\n]]}\n");
}

TEST(RenderTrace, AReplayWithoutTimelineIsABug) {
  const Trace trace = two_steps();
  EXPECT_THROW((void)render_trace(trace, replay(trace)), Error);
}

}  // namespace
}  // namespace memcalc
