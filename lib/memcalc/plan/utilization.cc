#include "memcalc/plan/utilization.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "memcalc/base/number_text.h"
#include "memcalc/report/quantity.h"
#include "memcalc/report/throughput.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/names.h"

namespace memcalc {

namespace {

bool has_any(const std::string& name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return name.find(part) != std::string::npos; });
}

// The number that follows `key` and the characters between a key and its value; the last one of the text.
std::optional<double> last_number(const std::string& text, std::string_view key) {
  const std::size_t at = text.rfind(key);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t begin = text.find_first_not_of("'\": =", at + key.size());
  if (begin == std::string::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = parse_number(text.data() + begin, text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value) || value <= 0) return std::nullopt;
  return value;
}

/// NaN is in no range.
void refuse_outside(const std::optional<double>& figure, double least, double most, const char* option,
                    const char* unit) {
  if (!figure || (*figure >= least && *figure <= most)) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("{}: found {:g}; accepted: {:g} to {:g} {}", option, *figure, least, most, unit));
}

void check(const JobFigures& job) {
  constexpr double kMostFlops = 1e20, kLeastRate = 1e-9, kMostRate = 1e15;
  refuse_outside(job.achieved_flops_per_second, 1, kMostFlops, "--achieved", "FLOP/s");
  refuse_outside(job.peak_flops_per_second, 1, kMostFlops, "--peak", "FLOP/s");
  refuse_outside(job.samples_per_second, kLeastRate, kMostRate, "--samples-per-s", "samples/s");
  refuse_outside(job.tokens_per_second, kLeastRate, kMostRate, "--tokens-per-s", "tokens/s");
  refuse_outside(job.reference_tokens_per_second, kLeastRate, kMostRate, "--reference", "tokens/s");
}

/// FLOPs that one card of the run spends on the model in a step: nothing where no time is known of several cards.
std::optional<double> model_flops_of_step(const Report& report) {
  if (report.time) return report.time->step.model_flops;
  const FlopRow& products = report.flops.at(static_cast<std::size_t>(OperatorClass::kContraction));
  const double flops = products.forward + products.backward;
  if (report.run.parallel.is_parallel() || !report.run.trains() || flops <= 0) return std::nullopt;
  return flops;
}

/// FLOP/s of one card at the job's throughput, with the FLOPs that memcalc counts for its steps.
std::optional<double> achieved_by_throughput(const JobFigures& job, const Report& report) {
  const std::optional<double> flops = model_flops_of_step(report);
  if (!flops) return std::nullopt;
  const double samples = samples_per_step(report), tokens = tokens_per_step(report);
  double steps_per_second = 0;
  if (job.samples_per_second && samples > 0) {
    steps_per_second = *job.samples_per_second / samples;
  } else if (job.tokens_per_second && tokens > 0) {
    steps_per_second = *job.tokens_per_second / tokens;
  }
  if (steps_per_second <= 0) return std::nullopt;
  // A run described on one card stands for each of the job's.
  const std::int64_t alike = report.run.parallel.is_parallel() ? 1 : job.gpus;
  return *flops * steps_per_second / static_cast<double>(alike);
}

/// What is missing for a share of anything.
std::string throughput_alone(const JobFigures& job, bool achieved) {
  if (achieved) return "Throughput alone: no peak of the card is known; give --peak.";
  if (job.peak_flops_per_second) {
    return "Throughput alone: beside a peak it takes the FLOPs of a token; give --model or --achieved.";
  }
  return "Throughput alone: no reference or peak was given (--reference, --peak).";
}

void tell_trace(const TraceSummary& trace, const Report* predicted, Answer& answer) {
  const double idle = trace.wall_seconds - trace.busy_seconds;
  answer.facts.push_back({"trace_seconds", "profiled", Unit::kSeconds, trace.wall_seconds});
  answer.facts.push_back({"idle_share", "card idle", Unit::kShare, idle / trace.wall_seconds});
  if (predicted != nullptr && predicted->time && predicted->time->step.step_seconds > 0) {
    const StepTime& step = predicted->time->step;
    answer.facts.push_back({"predicted_idle_share", "predicted idle", Unit::kShare,
                            std::max(0.0, 1 - step.kernel_seconds / step.step_seconds)});
  }
  answer.facts.push_back(
      {"tensor_core_share", "kernels on tensor cores", Unit::kShare, trace.tensor_core_seconds / trace.kernel_seconds});
  answer.columns = {{"class", "kernels"},
                    {"seconds", "time", Unit::kSeconds},
                    {"share", "share", Unit::kShare},
                    {"predicted_share", "predicted", Unit::kShare}};
  const auto predicted_share = [&](std::size_t i) -> Value {
    if (predicted == nullptr || !predicted->time || predicted->time->step.kernel_seconds <= 0) return {};
    return predicted->time->step.by_class.at(i) / predicted->time->step.kernel_seconds;
  };
  for (std::size_t i = 0; i <= static_cast<std::size_t>(TimeClass::kCommunication); ++i) {
    if (trace.by_class.at(i) <= 0) continue;
    answer.rows.push_back({std::string(name_of(static_cast<TimeClass>(i))), trace.by_class.at(i),
                           trace.by_class.at(i) / trace.kernel_seconds, predicted_share(i)});
  }
}

}  // namespace

bool is_tensor_core_kernel(const std::string& name) {
  // cuBLAS, cuDNN and CUTLASS name the instruction (884, 1688, 16816, HGMMA) or the unit; nvjet is cuBLAS's on Hopper.
  if (has_any(name, {"simt", "sgemm", "f32f32_f32f32_f32"})) return false;
  return has_any(name, {"nvjet", "wgmma", "gmma", "hmma", "imma", "s884", "h884", "s1688", "h1688", "s16816", "h16816",
                        "16816", "tensorop", "xmma", "flash_fwd", "flash_bwd", "cudnn_generated_fort_native_sdpa"});
}

TimeClass class_of_kernel(const std::string& name) {
  if (has_any(name, {"nccl"})) return TimeClass::kCommunication;
  if (has_any(name,
              {"gemm", "nvjet", "fmha", "flash", "sdpa", "conv", "cutlass", "xmma", "winograd", "dgrad", "wgrad"})) {
    if (!has_any(name, {"convert_dq"})) return TimeClass::kContraction;
  }
  if (has_any(name, {"multi_tensor_apply", "adam"})) return TimeClass::kOptimizer;
  if (has_any(name, {"oftmax", "SoftMax", "layer_norm", "LayerNorm", "batch_norm", "bn_fw", "bn_bw", "rms_norm",
                     "GammaBeta", "nll_loss"})) {
    return TimeClass::kNormalization;
  }
  if (has_any(name, {"copy", "Copy", "Cat", "gather", "scatter", "index", "Memcpy", "Memset", "transpose", "Fill",
                     "sort", "embedding", "roll", "nchwToNhwc", "nhwcToNchw"})) {
    return TimeClass::kMovement;
  }
  return TimeClass::kElementwise;
}

TraceSummary read_chrome_trace(const std::string& text, const std::string& name) {
  const JsonDocument document = JsonDocument::parse(text, name);
  TraceSummary summary;
  std::vector<std::pair<double, double>> spans;
  for (const JsonObject& event : document.root().optional_objects("traceEvents")) {
    const std::string category = event.optional_string("cat").value_or("");
    const bool copies = category == "gpu_memcpy" || category == "gpu_memset";
    if (category != "kernel" && !copies) continue;
    if (event.optional_string("ph").value_or("X") != "X") continue;
    const double begin = event.required_double("ts", {0, 1e18}) * 1e-6;
    const double seconds = event.required_double("dur", {0, 1e12}) * 1e-6;
    const std::string kernel = event.required_string("name");
    const TimeClass time_class = copies ? TimeClass::kMovement : class_of_kernel(kernel);
    spans.emplace_back(begin, begin + seconds);
    summary.kernel_seconds += seconds;
    summary.by_class.at(static_cast<std::size_t>(time_class)) += seconds;
    if (time_class == TimeClass::kCommunication) summary.communication_seconds += seconds;
    if (is_tensor_core_kernel(kernel)) summary.tensor_core_seconds += seconds;
    ++summary.kernels;
  }
  if (spans.empty() || summary.kernel_seconds <= 0) {
    throw Error(ErrorCode::kInput,
                one_line(name, 4096) + ": found no kernels; accepted: torch.profiler's export_chrome_trace with CUDA");
  }
  std::sort(spans.begin(), spans.end());
  double end = spans.front().first;
  for (const auto& [first, last] : spans) {
    summary.busy_seconds += std::max(0.0, last - std::max(first, end));
    end = std::max(end, last);
  }
  summary.wall_seconds = end - spans.front().first;
  if (summary.wall_seconds <= 0) {  // a duration that vanishes beside its time stamp
    throw Error(
        ErrorCode::kInput,
        one_line(name, 4096) + ": found kernels that end when they begin; accepted: ts and dur in microseconds");
  }
  return summary;
}

void read_log(const std::string& text, JobFigures& job) {
  const auto fill = [&](std::optional<double>& figure, std::initializer_list<std::string_view> keys) {
    for (const std::string_view key : keys) {
      if (!figure) figure = last_number(text, key);
    }
  };
  fill(job.tokens_per_second, {"tokens_per_second", "tokens/s", "tok/s"});
  fill(job.samples_per_second, {"samples_per_second", "samples/s"});
}

Answer answer_of(const JobFigures& job, const std::optional<TraceSummary>& trace, const Report* predicted) {
  check(job);
  Answer answer{.command = "utilization"};
  std::optional<double> tokens = job.tokens_per_second;
  if (!tokens && job.samples_per_second && job.sequence_length > 0) {
    tokens = *job.samples_per_second * static_cast<double>(job.sequence_length);
  }
  std::optional<double> achieved = job.achieved_flops_per_second;
  if (!achieved && predicted != nullptr) {
    achieved = achieved_by_throughput(job, *predicted);
    if (achieved) answer.notes.emplace_back("FLOPs are memcalc's: 6 N a token and attention in full");
  }
  if (achieved && job.peak_flops_per_second) {
    const double share = *achieved / *job.peak_flops_per_second;
    if (share > 1) {
      throw Error(ErrorCode::kUsage,
                  "utilization: found " + format_flops(*achieved) + "/s achieved on a card of " +
                      format_flops(*job.peak_flops_per_second) +
                      "/s; accepted: at most its peak (--cards N where the throughput is of N cards)");
    }
    const std::string precise = format_fixed(100 * share, 2) + " %";
    answer.headline = "Utilisation: " + precise + " of the card's peak.";
    answer.facts.push_back({"achieved_flops_per_second", "achieved a second", Unit::kFlops, *achieved});
    answer.facts.push_back({"peak_flops_per_second", "peak a second", Unit::kFlops, *job.peak_flops_per_second});
    answer.facts.push_back({"mfu", "achieved over peak", Unit::kShare, share});
  }
  if (tokens) {
    const double each = *tokens / static_cast<double>(job.gpus);
    answer.facts.push_back({"tokens_per_second_per_gpu", "tokens/s on each card", Unit::kRate, each});
    if (job.reference_tokens_per_second) {
      const double share = each / *job.reference_tokens_per_second;
      answer.facts.push_back(
          {"reference_tokens_per_second_per_gpu", "reference", Unit::kRate, *job.reference_tokens_per_second});
      answer.facts.push_back({"share_of_reference", "of the reference", Unit::kShare, share});
      if (answer.headline.empty()) {
        answer.headline = "Throughput: " + format_percent(share, 1) + " of the reference.";
      }
    }
  }
  if (predicted != nullptr && predicted->time) {
    answer.facts.push_back({"predicted_mfu", "predicted MFU", Unit::kShare, predicted->time->mfu});
    answer.facts.push_back({"predicted_tensor_core_share", "predicted on tensor cores", Unit::kShare,
                            predicted->time->step.tensor_core_share()});
    answer.facts.push_back(
        {"predicted_step_seconds", "predicted step", Unit::kSeconds, predicted->time->step.step_seconds});
  }
  if (trace) tell_trace(*trace, predicted, answer);
  if (answer.headline.empty() && trace) {
    answer.headline = "The card was busy for " + format_percent(trace->busy_seconds, trace->wall_seconds) +
                      " of the profile, on tensor cores for " +
                      format_percent(trace->tensor_core_seconds, trace->wall_seconds) + ".";
  }
  if (answer.headline.empty() && tokens) answer.headline = throughput_alone(job, achieved.has_value());
  if (answer.headline.empty()) {
    throw Error(ErrorCode::kUsage,
                "utilization: found too little; accepted: achieved FLOP/s with a peak or --gpu, a throughput, a trace");
  }
  return answer;
}

}  // namespace memcalc
