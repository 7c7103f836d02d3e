// One table of section, name, value, unit: RFC 4180 quoting, bytes and FLOPs in full.
#include <string>
#include <string_view>

#include "memcalc/report/quantity.h"
#include "memcalc/report/render_internal.h"
#include "memcalc/spec/run_fields.h"

namespace memcalc {
namespace {

class Csv {
 public:
  Csv() : out_("section,name,value,unit\n") {}

  void text(std::string_view section, std::string_view name, std::string_view value) { row(section, name, value, ""); }
  void bytes(std::string_view section, std::string_view name, Bytes value) {
    row(section, name, std::to_string(value), "bytes");
  }
  void number(std::string_view section, std::string_view name, double value, std::string_view unit) {
    row(section, name, format_exact(value), unit);
  }
  void setting(const Field& field, const FieldValue& value) {
    const std::string_view section = field.group == FieldGroup::kMegatron    ? "megatron"
                                     : field.group == FieldGroup::kDeepSpeed ? "deepspeed"
                                                                             : "run";
    const bool* flag = std::get_if<bool>(&value);
    row(section, field.key, flag != nullptr ? (*flag ? "true" : "false") : text_of(value), field.unit);
  }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  void row(std::string_view section, std::string_view name, std::string_view value, std::string_view unit) {
    out_ += csv_quoted(section) + "," + csv_quoted(name) + "," + csv_quoted(value) + "," + csv_quoted(unit) + "\n";
  }
  std::string out_;
};

void write_run(const Report& report, Csv& csv) {
  csv.text("model", "name", report.model.name);
  for (const auto& [field, value] : record_of(ran_of(report))) csv.setting(*field, value);
  csv.text("device", "name", report.device.name);
  csv.bytes("device", "memory", report.device.memory_bytes);
  csv.text("device", "verdict", std::string(name_of(report.verdict)));
  csv.bytes("device", "needed", report.needed());
  csv.bytes("device", "needed_error", report.needed_error);
  if (report.full_card) {
    csv.text("full_card", "runs", report.full_card->runs ? "true" : "false");
    csv.number("full_card", "allocator_retries", static_cast<double>(report.full_card->retries), "retries");
  }
  csv.text("profile", "name", report.profile);
}

void write_weights(const WeightsComparison& weights, Csv& csv) {
  csv.number("weights_on_disk", "parameters", static_cast<double>(weights.parameters), "parameters");
  csv.bytes("weights_on_disk", "bytes", weights.bytes);
  csv.text("weights_on_disk", "agree", weights.agrees() ? "true" : "false");
  for (const std::string& each : weights_notes(weights)) csv.text("weights_on_disk", "note", each);
}

void write_memory(const Report& report, Csv& csv) {
  const ReplayResult& memory = report.memory;
  csv.bytes("memory", "peak_allocated", memory.peak_allocated);
  csv.bytes("memory", "peak_reserved", memory.peak_reserved);
  if (report.device_used_bytes) csv.bytes("memory", "device_used", *report.device_used_bytes);
  csv.bytes("memory", "managed", report.managed_bytes);
  if (report.vllm) {
    const VllmMemory& vllm = *report.vllm;
    csv.bytes("vllm", "requested", vllm.requested);
    csv.bytes("vllm", "weights", vllm.weights);
    csv.bytes("vllm", "activations", vllm.activations);
    csv.bytes("vllm", "cache", vllm.cache);
    csv.bytes("vllm", "while_generating", vllm.while_generating);
    csv.bytes("vllm", "while_training", vllm.while_training);
    csv.number("vllm", "least_utilization", vllm.utilization.least, "");
    csv.number("vllm", "least_utilization_for_all", vllm.utilization.least_for_all, "");
    csv.number("vllm", "most_utilization", vllm.utilization.most, "");
    for (const std::string& each : vllm.notes) csv.text("vllm", "note", each);
  }
  csv.bytes("memory", "exact_lower_bound", memory.exact_peak);
  csv.bytes("memory", "fragmentation", fragmentation_bytes(report));
  for (const CategoryShare& share : category_shares(report)) csv.bytes("category", share.name, share.bytes);
  for (const PhasePeak& each : phase_peaks(report)) csv.bytes("phase_peak", name_of(each.phase), each.bytes);
  for (const StageRow& row : report.stages) {
    csv.bytes("stage_allocated", row.name, row.peak_allocated);
    csv.bytes("stage_reserved", row.name, row.peak_reserved);
    if (row.host_bytes > 0) csv.bytes("stage_host", row.name, row.host_bytes);
  }
  if (report.epoch) {
    csv.number("epoch", "steps", static_cast<double>(report.epoch->steps), "steps");
    csv.number("epoch", "peak_step", static_cast<double>(report.epoch->peak_step), "");
    csv.number("epoch", "average_samples", static_cast<double>(report.epoch->average_samples), "samples");
    csv.number("epoch", "average_tokens", static_cast<double>(report.epoch->average_tokens), "tokens");
    csv.bytes("epoch", "reserved_after_first_step", report.epoch->reserved_after_first_step);
    csv.bytes("epoch", "reserved_at_end", report.epoch->reserved_at_end);
    csv.number("epoch", "growing_steps", static_cast<double>(report.epoch->growing_steps), "steps");
    if (report.epoch->retrying_steps) {
      csv.number("epoch", "retrying_steps", static_cast<double>(*report.epoch->retrying_steps), "steps");
    }
  }
  if (report.concurrent_sequences) {
    csv.number("concurrency", "sequences", static_cast<double>(*report.concurrent_sequences), "sequences");
  }
  if (report.kv_cache) {
    csv.bytes("kv_cache", "total", report.kv_cache->bytes);
    csv.bytes("kv_cache", "token", report.kv_cache->bytes_per_token);
    csv.bytes("kv_cache", "encoder", report.kv_cache->encoder_bytes);
  }
  csv.text("peak", "phase", name_of(report.peak_phase));
  csv.number("peak", "step", report.peak_step, "");
  csv.text("peak", "operator", report.peak_operator);
}

void write_accounting(std::string_view view, const std::vector<AccountingRow>& rows, Csv& csv) {
  const std::string section = "accounting_" + std::string(view);
  for (const AccountingRow& row : rows) {
    csv.number(section, row.name, row.bytes_per_parameter, "bytes/parameter");
    csv.bytes(section, row.name, row.total_bytes);
  }
}

void write_flops(const Report& report, Csv& csv) {
  csv.number("flops", "total", total_flops(report), "FLOP");
  for (const FlopRow& row : report.flops) {
    const std::string section = "flops_" + std::string(name_of(row.operator_class));
    csv.number(section, "forward", row.forward, "FLOP");
    csv.number(section, "backward", row.backward, "FLOP");
    csv.number(section, "recomputation", row.recomputation, "FLOP");
    csv.number(section, "optimizer", row.optimizer, "FLOP");
    csv.number(section, "moved", row.bytes_moved, "bytes");
  }
}

void write_time(const Throughput& time, Csv& csv) {
  csv.number("time", "step", time.step.step_seconds, "s");
  csv.number("time", "samples", time.samples_per_second, "1/s");
  if (time.tokens_per_second > 0) csv.number("time", "tokens", time.tokens_per_second, "1/s");
  csv.number("time", "mfu", time.mfu, "");
  csv.number("time", "hfu", time.hfu, "");
  csv.number("time_phase", "forward", time.step.forward_seconds, "s");
  csv.number("time_phase", "backward", time.step.backward_seconds, "s");
  csv.number("time_phase", "optimizer", time.step.optimizer_seconds, "s");
  for (std::size_t i = 0; i < kTimeClassCount; ++i) {
    csv.number("time_class", std::string(name_of(static_cast<TimeClass>(i))), time.step.by_class.at(i), "s");
  }
}

}  // namespace

std::string csv_quoted(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string result = "\"";
  for (const char c : text) result.append(c == '"' ? 2 : 1, c);
  return result + "\"";
}

std::string render_csv(const Report& report, const RenderOptions& options) {
  Csv csv;
  write_run(report, csv);
  csv.number("params", "total", static_cast<double>(report.parameters_total), "parameters");
  csv.number("params", "trainable", static_cast<double>(report.parameters_trainable), "parameters");
  if (report.weights) write_weights(*report.weights, csv);
  csv.number("params", "active", static_cast<double>(report.parameters_active), "parameters");
  write_memory(report, csv);
  write_accounting("classic", report.accounting.classic, csv);
  write_accounting("profile", report.accounting.profile, csv);
  write_accounting("alternative", report.accounting.alternatives, csv);
  write_flops(report, csv);
  if (report.time) write_time(*report.time, csv);
  if (report.training) {
    csv.number("training", "seconds", report.training->seconds, "s");
    csv.number("training", "gpu_hours", report.training->gpu_hours, "h");
    csv.number("training", "price", report.training->usd, "US$");
  }
  for (const FitRow& row : report.other_gpus) {
    csv.bytes("other_gpu_needed", row.gpu, row.needed_bytes);
    csv.text("other_gpu_verdict", row.gpu, std::string(name_of(row.verdict)));
  }
  if (options.explain) {
    for (const PeakContributor& each : report.contributors) {
      csv.bytes("contributor_" + std::string(name_of(each.category)), each.operator_chain, each.total_bytes);
    }
  }
  for (const std::string& each : report.assumptions) csv.text("assumption", "", each);
  for (const std::string& each : report.not_modelled) csv.text("not_modelled", "", each);
  return csv.take();
}

}  // namespace memcalc
