// What text and Markdown say of the time of a step.
#include <algorithm>

#include "memcalc/report/quantity.h"
#include "memcalc/report/render_internal.h"

namespace memcalc {

std::vector<std::pair<std::string_view, double>> time_classes(const StepTime& step) {
  std::vector<std::pair<std::string_view, double>> classes;
  for (std::size_t i = 0; i < kTimeClassCount; ++i) {
    const double seconds = step.by_class.at(i);
    if (seconds > 0) classes.emplace_back(name_of(static_cast<TimeClass>(i)), seconds);
  }
  return classes;
}

std::vector<std::pair<std::string, std::string>> rates_of(const Throughput& time) {
  const StepTime& step = time.step;
  std::vector<std::pair<std::string, std::string>> rates;
  const auto rate = [](double value) { return value < 100 ? format_fixed(value, 2) : format_amount(value); };
  rates.emplace_back("samples/s", rate(time.samples_per_second));
  if (time.tokens_per_second > 0) rates.emplace_back("tokens/s", rate(time.tokens_per_second));
  const std::string peak = format_flops(step.peak_flops_per_second) + "/s by the datasheet";
  const std::string masked = time.masked_left_out ? "; causal attention by its half" : "";
  rates.emplace_back("MFU", format_percent(time.mfu, 1) + " of " + peak + masked);
  if (time.hfu > time.mfu) rates.emplace_back("HFU", format_percent(time.hfu, 1) + " with what is recomputed");
  rates.emplace_back("on tensor cores", format_percent(step.tensor_core_share(), 1) + " of the kernels' time");
  if (time.energy_joules > 0)
    rates.emplace_back("energy", "at most " + format_fixed(time.energy_joules, 0) + " J at TDP");
  if (time.input_seconds) {
    rates.emplace_back("data", format_seconds(*time.input_seconds) + " a step; the card does not wait from " +
                                   (time.workers_needed > 0 ? format_counted(time.workers_needed, "worker") + " on"
                                                            : std::string("no number of workers on: storage")));
  }
  if (step.host_bound()) {
    rates.emplace_back("bound by the host",
                       format_seconds(step.host_seconds) + " to issue " + format_counted(step.kernels, "kernel"));
  }
  return rates;
}

std::vector<std::pair<std::string, std::string>> training_lines(const TrainingRun& run) {
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
  if (run.energy_kwh > 0) lines.emplace_back("energy", "at most " + format_amount(run.energy_kwh) + " kWh at TDP");
  return lines;
}

}  // namespace memcalc
