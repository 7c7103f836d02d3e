// What text and Markdown say of the time of a step.
#include <algorithm>
#include <cmath>
#include <string>

#include "memcalc/report/quantity.h"
#include "memcalc/report/render_internal.h"

namespace memcalc {

namespace {

/// As people say it, where the key in JSON is more than a word.
std::string_view words_of(TimeClass time_class) {
  return time_class == TimeClass::kFirstCalls ? "first calls" : name_of(time_class);
}

}  // namespace

std::vector<std::pair<std::string_view, double>> time_classes(const StepTime& step) {
  std::vector<std::pair<std::string_view, double>> classes;
  for (std::size_t i = 0; i < kTimeClassCount; ++i) {
    const double seconds = step.by_class.at(i);
    if (seconds > 0) classes.emplace_back(words_of(static_cast<TimeClass>(i)), seconds);
  }
  return classes;
}

std::string_view title_of(const Throughput& time) { return time.of_call ? "Time of one call" : "Time of one step"; }

namespace {

/// What decides the step, and what to change.
std::string bound_of(const Throughput& time) {
  const StepTime& step = time.step;
  switch (step.bound()) {
    case Bound::kHost:
      if (time.steps_on_host && step.optimizer_seconds > 0.5 * step.host_seconds) {
        return "the host: " + format_seconds(step.optimizer_seconds) + " of the optimizer's step in its memory";
      }
      return "the host: " + format_seconds(step.host_seconds) + " to issue " + format_counted(step.kernels, "kernel") +
             (time.of_call ? "; a larger batch issues fewer for each sample"
                           : "; a larger batch or --compile issues fewer for each sample");
    case Bound::kLinks:
      return "the links: " + format_seconds(step.by_class[static_cast<std::size_t>(TimeClass::kCommunication)]) +
             " of collectives that nothing hides; more micro-batches for each sum of gradients need fewer";
    case Bound::kFirstCalls: return "sizes that libraries have not seen; --pad-to-multiple makes fewer";
    case Bound::kData: return "the data: more --loader-workers or faster storage";
    case Bound::kCard: break;
  }
  return "the card";
}

std::string at_power_limit(std::int64_t cards) {
  return cards == 1 ? "at its power limit" : "with " + std::to_string(cards) + " cards at their power limit";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> rates_of(const Throughput& time, std::int64_t cards) {
  const StepTime& step = time.step;
  std::vector<std::pair<std::string, std::string>> rates;
  if (time.generation) {
    rates.emplace_back("first token", "after " + format_seconds(time.generation->prefill_seconds));
    if (time.generation->token_seconds > 0) {
      rates.emplace_back("each later token", format_seconds(time.generation->token_seconds) + " for the whole batch");
    }
  }
  if (!time.lacks.empty()) rates.emplace_back("without", time.lacks + ", whose time is not modelled");
  rates.emplace_back("samples/s", format_rate(time.samples_per_second));
  if (time.tokens_per_second > 0) rates.emplace_back("tokens/s", format_rate(time.tokens_per_second));
  const std::string peak = format_flops(step.peak_flops_per_second) + "/s by the datasheet";
  const std::string masked = time.masked_left_out ? "; causal attention by its half" : "";
  rates.emplace_back("MFU", format_percent(time.mfu, 1) + " of " + peak + masked);
  if (time.hfu > time.mfu) rates.emplace_back("HFU", format_percent(time.hfu, 1) + " with what is recomputed");
  rates.emplace_back("on tensor cores", format_percent(step.tensor_core_share(), 1) + " of the kernels' time");
  if (time.energy_joules > 0)
    rates.emplace_back("energy", "at most " + format_amount(time.energy_joules) + " J " + at_power_limit(cards));
  if (time.input_seconds) {
    rates.emplace_back("data", format_seconds(*time.input_seconds) + " a step; the card does not wait from " +
                                   (time.workers_needed > 0 ? format_counted(time.workers_needed, "worker") + " on"
                                                            : std::string("no number of workers on: storage")));
  }
  if (time.generation_steps > 0) {
    const bool is_whole = time.generation_steps == std::floor(time.generation_steps);
    const std::string steps = format_fixed(time.generation_steps, is_whole ? 0 : 2);
    rates.emplace_back("generation", "one serves " + steps +
                                         " steps, whose mean this is: " + format_seconds(step.generating_step_seconds) +
                                         " with it, " + format_seconds(step.other_step_seconds) + " without");
  }
  if (const auto& first = step.first_calls) {
    const auto counted = [](double count) { return format_fixed(count, count < 10 ? 1 : 0); };
    const std::string products =
        first->products > 0 ? " and cuBLAS chooses kernels of " + counted(first->products) + " products" : "";
    rates.emplace_back("first calls",
                       "in an average step of this data cuDNN plans " + counted(first->plans) + " attentions" +
                           products + " of sizes that they have not seen: " + format_seconds(first->seen_step_seconds) +
                           " where all were seen, " + format_seconds(first->new_step_seconds) + " where none was");
  }
  rates.emplace_back("bound by", bound_of(time));
  const HostRange& hosts = step.hosts;
  if (hosts.most_seconds > hosts.least_seconds) {
    rates.emplace_back("on measured hosts", format_seconds(hosts.least_seconds) + " (" + hosts.least_host + ") to " +
                                                format_seconds(hosts.most_seconds) + " (" + hosts.most_host + ")");
  }
  if (!step.host.empty()) rates.emplace_back("host", step.host);
  if (!time.rates_from.empty()) rates.emplace_back("the card's rates", time.rates_from);
  if (time.error && time.error->runs > 0) {
    const std::string& published = time.error->published;
    std::string runs = format_counted(time.error->runs, published.empty() ? "measured run" : "published run");
    runs += !published.empty() ? " " + published : time.rates_from.empty() ? " like it" : " like it on an H100 or H200";
    rates.emplace_back("error", "half of " + runs + " within " + format_percent(time.error->median, 1) +
                                    ", nine in ten within " + format_percent(time.error->p90, 1));
  }
  return rates;
}

std::vector<std::pair<std::string, std::string>> training_lines(const TrainingRun& run, std::int64_t cards) {
  std::vector<std::pair<std::string, std::string>> lines;
  const auto counted = [](double value, const char* noun) {
    const std::string amount = format_amount(value);
    return amount + " " + noun + (amount == "1" ? "" : "s");
  };
  lines.emplace_back("tokens", format_amount(run.tokens) + " in " + counted(run.steps, "step"));
  lines.emplace_back("time", format_seconds(run.seconds) + ", " + counted(run.gpu_hours, "GPU hour"));
  if (run.usd_per_hour > 0) {
    lines.emplace_back(
        "price", format_amount(run.usd) + " US$ at " + format_fixed(run.usd_per_hour, 2) + ": " + run.price_source);
  }
  if (run.energy_kwh > 0)
    lines.emplace_back("energy", "at most " + format_amount(run.energy_kwh) + " kWh " + at_power_limit(cards));
  return lines;
}

}  // namespace memcalc
