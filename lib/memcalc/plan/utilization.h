// memcalc utilization: how well a running job uses its cards, by the two known measures and by a profile.
// Covered by tests/unit/utilization_test.cc.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "memcalc/report/answer.h"
#include "memcalc/report/report.h"

namespace memcalc {

/// What is known of a job; nothing where it is not given.
struct JobFigures {
  std::optional<double> achieved_flops_per_second;  // of one card
  std::optional<double> peak_flops_per_second;      // of one card, dense, by the datasheet
  std::optional<double> samples_per_second;         // of the whole job
  std::optional<double> tokens_per_second;          // of the whole job
  std::int64_t sequence_length = 0;                 // tokens of a sample
  std::int64_t gpus = 1;
  std::optional<double> reference_tokens_per_second;  // of one card: what the same job reaches elsewhere
};

/// A profile of torch.profiler as a Chrome trace, added up.
struct TraceSummary {
  double wall_seconds = 0;    // from the first kernel's start to the last one's end
  double busy_seconds = 0;    // in which at least one kernel or copy ran
  double kernel_seconds = 0;  // of all of them
  double tensor_core_seconds = 0;
  double communication_seconds = 0;
  std::array<double, kTimeClassCount> by_class{};  // kernels, by their names
  std::int64_t kernels = 0;
};

/// Reads {"traceEvents": [{"ph": "X", "cat": "kernel", "name": …, "ts": µs, "dur": µs}, …]}; gpu_memcpy and gpu_memset
/// count as movement. Throws Error(kInput) for a text that is none, or has no kernel.
[[nodiscard]] TraceSummary read_chrome_trace(const std::string& text, const std::string& name);

/// True where NVIDIA's names say that a kernel's work is done by tensor cores.
[[nodiscard]] bool is_tensor_core_kernel(const std::string& name);

/// The operator class of a kernel by its name.
[[nodiscard]] TimeClass class_of_kernel(const std::string& name);

/// The last throughput that a training log states: {'train_samples_per_second': 3.0, …} of the Trainer,
/// "tokens_per_second": …, "samples/s: 3.0". Fills what is missing in `job`.
void read_log(const std::string& text, JobFigures& job);

/// Achieved over peak FLOP/s, and tokens per card and second over a reference. `predicted`: memcalc's report of the
/// same run, for comparison and for the FLOPs of a sample or token; null: none. Throws Error(kUsage) for a figure that
/// cannot be: none above 0, or more achieved than the peak.
[[nodiscard]] Answer answer_of(const JobFigures& job, const std::optional<TraceSummary>& trace,
                               const Report* predicted);

}  // namespace memcalc
