#include "memcalc/report/throughput.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/host_step.h"
#include "memcalc/spec/prediction_errors.h"

namespace memcalc {

namespace {

/// Of a card that this project has not timed.
std::string source_of_rates(const DeviceSpec& device) {
  if (!device.rates->published_source.empty()) {
    const std::string& source = device.rates->published_source;
    return "what " + source.substr(0, source.find(": ")) + " timed on this card, else an H100's by the datasheet";
  }
  const ProductShares& products = device.product_shares;
  if (products.of_card) return "an H100's by the datasheet, products by what others timed on this card";
  const bool alike = products.half != 1 || products.tf32 != 1 || products.float32 != 1 ||
                     products.bf16_over_float32 > 0 || products.fp16_over_float32 > 0;
  return alike ? "an H100's by the datasheet, products by what others timed on cards built alike"
               : "an H100's by the datasheet";
}

double real(std::int64_t value) { return static_cast<double>(value); }

/// NaN is in no range.
void refuse_outside(double value, double least, double most, const char* option, const char* unit) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("{}: found {:g}; accepted: {:g} to {:g} {}", option, value, least, most, unit));
}

/// That of the measured runs like this one, or of the runs that others published of cards like its.
std::optional<StepError> error_of_step(const Report& report, const StepTime& step) {
  if (report.device.errors == nullptr) return std::nullopt;
  const bool waits_for_host = step.bound() == Bound::kHost || step.bound() == Bound::kFirstCalls;
  const DeviceRates* const rates = report.device.rates.get();
  const bool timed_card = rates != nullptr && !rates->predicted;
  const StepKind kind = step_kind_of(report.model, report.run, waits_for_host, timed_card);
  const auto at = static_cast<std::size_t>(kind);
  const StepErrors& errors = report.device.errors->steps.at(at);
  std::string published;
  if (kind == StepKind::kOtherCard) published = "on such cards";
  if (kind == StepKind::kOtherCards) published = "of several A100s or B200s";  // docs/published-blind.md: several cards
  return StepError{std::string(kStepKindNames.at(at)), errors.median, errors.p90, errors.runs, std::move(published)};
}

// Ranks that see samples of their own.
double data_parallel_ranks(const Parallel& parallel) {
  return real(std::max<std::int64_t>(1, parallel.gpus / (parallel.tensor * parallel.context * parallel.pipeline)));
}

}  // namespace

std::string untimed_part(const RunSpec& run) {
  const Parallel& parallel = run.parallel;
  if (parallel.offload_states == OffloadTo::kNvme) return "the optimizer's step on NVMe";
  if (parallel.framework() == Framework::kDeepSpeed && parallel.offload_parameters != OffloadTo::kNowhere) {
    return "the copies of offloaded parameters";
  }
  return run.uses_vllm() ? "vLLM's generation" : "";
}

double samples_per_step(const Report& report) {
  const RunSpec& run = report.run;
  const Parallel& parallel = run.parallel;
  if (report.epoch) return real(report.epoch->average_samples) * data_parallel_ranks(parallel);
  const std::int64_t of_pipeline = parallel.micro_batches > 0 ? parallel.micro_batches : parallel.pipeline;
  const double micro_batches = real(run.accumulation_steps()) * real(std::max<std::int64_t>(1, of_pipeline));
  return real(run.batch_size) * micro_batches * data_parallel_ranks(parallel);
}

double tokens_per_step(const Report& report) {
  const RunSpec& run = report.run;
  if (report.epoch) return real(report.epoch->average_tokens) * data_parallel_ranks(run.parallel);
  if (run.trains() && run.training().lengths) return 0;  // nothing was told of its steps
  if (run.inference() != nullptr && run.inference()->new_tokens > 0) {
    return real(run.batch_size) * real(run.inference()->return_sequences) * real(run.inference()->new_tokens);
  }
  if (run.image_size > 0 && run.task != Task::kCausalLm) return 0;  // images in a text are tokens of it
  double sequences = run.trains_on_pairs() ? 2 : 1;
  if (run.trains() && run.training().loop == Loop::kSentenceTransformer) {
    sequences = real(run.training().sentences.columns());
  }
  return samples_per_step(report) * sequences * real(run.sequence_length + run.target_sequence_length);
}

void feed(Report& report, const InputPipeline& input) {
  refuse_outside(input.sample_seconds, 0, 1e9, "--sample-seconds", "seconds a sample");
  refuse_outside(input.sample_bytes, 0, 1e18, "--sample-bytes", "bytes a sample");
  refuse_outside(input.storage_bytes_per_second, 0, 1e18, "--storage-rate", "bytes/s");
  Throughput& time = *report.time;
  StepTime& step = time.step;
  const Parallel& parallel = report.run.parallel;
  const double samples = samples_per_step(report) / data_parallel_ranks(parallel);  // of one rank's loader
  const double workers = real(report.run.dataloader_workers);
  const double reading =
      input.storage_bytes_per_second > 0 ? samples * input.sample_bytes / input.storage_bytes_per_second : 0;
  const double preparing = samples * input.sample_seconds;
  time.input_seconds = std::max(reading, preparing / std::max(workers, 1.0));
  const double computing = step.step_seconds;
  // A step that waits for storage waits with any number of workers.
  time.workers_needed = reading > computing ? 0 : static_cast<std::int64_t>(std::ceil(preparing / computing));
  const double waiting = workers < 1 ? *time.input_seconds : std::max(0.0, *time.input_seconds - computing);
  step.by_class[static_cast<std::size_t>(TimeClass::kInput)] += waiting;
  step.step_seconds += waiting;
  if (workers < 1 && step.hosts.most_seconds > 0) {
    step.hosts.least_seconds += waiting;
    step.hosts.most_seconds += waiting;
  }
  const double slower = computing / step.step_seconds;
  for (double* rate : {&time.samples_per_second, &time.tokens_per_second, &time.mfu, &time.hfu}) *rate *= slower;
  time.energy_joules /= slower;
}

TrainingRun training_run_of(const Report& report, double tokens) {
  if (!report.time || report.time->tokens_per_second <= 0) {
    throw Error(ErrorCode::kUsage,
                "--tokens: found a run without tokens a second; accepted: text models on a known GPU");
  }
  if (const std::string& lacks = report.time->lacks; !lacks.empty()) {
    throw Error(ErrorCode::kUsage, "--tokens: found a step whose time lacks " + lacks +
                                       "; accepted: steps whose time is known as a whole");
  }
  refuse_outside(tokens, 1, 1e18, "--tokens", "tokens");
  const Throughput& time = *report.time;
  const double cards = real(report.run.parallel.gpus);
  TrainingRun run{.tokens = tokens};
  run.seconds = tokens / time.tokens_per_second;
  run.steps = std::ceil(run.seconds / time.step.step_seconds);
  run.gpu_hours = cards * run.seconds / 3600;
  run.usd_per_hour = report.device.usd_per_hour;
  run.usd = run.usd_per_hour * run.gpu_hours;
  run.price_source = report.device.price_source;
  run.energy_kwh = report.device.power_watts * run.gpu_hours / 1000;
  return run;
}

Throughput throughput_of(const Report& report, const StepTime& step) {
  const RunSpec& run = report.run;
  const DeviceSpec& device = report.device;
  Throughput time{.step = step, .of_call = !run.trains(), .steps_on_host = steps_on_host(run)};
  if (run.inference() != nullptr && run.inference()->new_tokens > 0) {
    const double later = real(run.inference()->new_tokens - 1);
    time.generation = GenerationTime{.prefill_seconds = step.step_seconds - step.decode_seconds,
                                     .token_seconds = later > 0 ? step.decode_seconds / later : 0};
  }
  if (step.generating_step_seconds > 0 && run.training().generate_every() > run.accumulation_steps()) {
    time.generation_steps = real(run.training().generate_every()) / real(run.accumulation_steps());
  }
  if (step.step_seconds <= 0) return time;
  time.samples_per_second = samples_per_step(report) / step.step_seconds;
  time.tokens_per_second = tokens_per_step(report) / step.step_seconds;
  const double peak = step.peak_flops_per_second * step.step_seconds;
  if (peak > 0) {
    time.masked_left_out = step.hardware_flops > peak;
    time.mfu = (step.model_flops - (time.masked_left_out ? step.masked_model_flops : 0)) / peak;
    time.hfu = (step.hardware_flops - (time.masked_left_out ? step.masked_hardware_flops : 0)) / peak;
  }
  time.energy_joules = device.power_watts * real(run.parallel.gpus) * step.step_seconds;
  if (device.rates != nullptr && device.rates->predicted) time.rates_from = source_of_rates(device);
  return time;
}

void set_time(Report& report, const StepTime& step) {
  report.time = throughput_of(report, step);
  report.time->lacks = untimed_part(report.run);
  // No step whose optimizer is on the host was measured as a whole, and none at a limit below the card's own.
  const bool measured_alike = !report.time->steps_on_host && !report.device.power_given;
  if (report.time->lacks.empty() && measured_alike) report.time->error = error_of_step(report, step);
  const auto note = [&](std::string text) {
    const auto told = std::find(report.assumptions.begin(), report.assumptions.end(), text);
    if (told == report.assumptions.end()) report.assumptions.push_back(std::move(text));
  };
  if (report.time->masked_left_out) {
    note(
        "MFU and HFU count of causal attention the half that is computed: in full, as is usual, they would exceed the "
        "card's peak");
  }
  if (report.device.power_given) {
    note(
        fmt::format("at {:.0f} W products slow down by what they draw at the card's own limit; no step below it was "
                    "measured (not validated)",
                    report.device.power_watts));
  }
}

}  // namespace memcalc
