#include "memcalc/report/throughput.h"
#include "memcalc/spec/device_rates.h"

#include <algorithm>
#include <cstdint>

namespace memcalc {

namespace {

double real(std::int64_t value) { return static_cast<double>(value); }

// Ranks that see samples of their own.
double data_parallel_ranks(const Parallel& parallel) {
  return real(std::max<std::int64_t>(1, parallel.gpus / (parallel.tensor * parallel.context * parallel.pipeline)));
}

}  // namespace

double samples_per_step(const RunSpec& run) {
  const double micro_batches =
      real(run.accumulation_steps) * real(std::max<std::int64_t>(1, run.parallel.micro_batches));
  return real(run.batch_size) * micro_batches * data_parallel_ranks(run.parallel);
}

double tokens_per_step(const RunSpec& run) {
  if (run.image_size > 0) return 0;
  return samples_per_step(run) * real(run.sequence_length + run.target_sequence_length);
}

Throughput throughput_of(const RunSpec& run, const DeviceSpec& device, const StepTime& step) {
  Throughput time{.step = step};
  if (step.step_seconds <= 0) return time;
  time.samples_per_second = samples_per_step(run) / step.step_seconds;
  time.tokens_per_second = tokens_per_step(run) / step.step_seconds;
  const double peak = step.peak_flops_per_second * step.step_seconds;
  if (peak > 0) {
    time.mfu = step.model_flops / peak;
    time.hfu = step.hardware_flops / peak;
  }
  time.energy_joules = device.power_watts * real(run.parallel.gpus) * step.step_seconds;
  time.predicted = device.rates != nullptr && device.rates->predicted;
  return time;
}

}  // namespace memcalc
