// Time of a replay, on traces made from logged histories. docs/performance.md holds the figures.
#include <benchmark/benchmark.h>

#include <string>

#include "memcalc/alloc/replay.h"
#include "support/h100_placement.h"
#include "support/history.h"

namespace memcalc {
namespace {

void replay_history(benchmark::State& state, const std::string& id) {
  const Trace trace = measured::trace_of(measured::read_history(id));
  const SegmentPlacement placement = measured::h100_placement();
  const ReplayOptions options{.placement = &placement};
  for (auto _ : state) benchmark::DoNotOptimize(replay(trace, options));
  const auto events = static_cast<double>(trace.events.size());
  state.counters["events"] = events;
  state.counters["per_event"] =
      benchmark::Counter(events, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(replay_history, bert_large_fp32, "bert-large-b4-s512-fp32")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(replay_history, bert_large_amp, "bert-large-b4-s512-amp-fp16")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(replay_history, llama_1b_ckpt, "llama-3.2-1b-b4-s2048-bf16-ckpt")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(replay_history, qwen3_0_6b, "qwen3-0.6b-b4-s1024-bf16")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(replay_history, resnet50, "resnet50-b8-fp32")->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace memcalc

BENCHMARK_MAIN();
