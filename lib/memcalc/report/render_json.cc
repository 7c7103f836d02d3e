// The record: JSON with its unit in every key, documented by docs/report.schema.json. The only renderer that knows
// nlohmann/json. A quantity that is not known is left out, never null.
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <nlohmann/json.hpp>

#include "memcalc/report/accounting.h"
#include "memcalc/report/remedies_json.h"
#include "memcalc/report/render_internal.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/run_fields.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

using Json = nlohmann::ordered_json;

Json model_json(const Report& report) {
  Json json = {{"name", report.model.name},
               {"model_type", report.model.model_type},
               {"source", report.model.source},
               {"date", report.model.date}};
  if (report.model.checkpoint_dtype) json["checkpoint_dtype"] = name_of(*report.model.checkpoint_dtype);
  return json;
}

Json value_json(const FieldValue& value) {
  return std::visit([](const auto& each) { return Json(each); }, value);
}

/// The rows of the table of a run (spec/run_fields.h); Megatron's and DeepSpeed's in objects of their own.
Json run_json(const Report& report) {
  Json json = Json::object();
  for (const auto& [field, value] : record_of(ran_of(report))) {
    Json& place = field->group == FieldGroup::kMegatron    ? json["megatron"]
                  : field->group == FieldGroup::kDeepSpeed ? json["deepspeed"]
                                                           : json;
    place[std::string(field->key)] = value_json(value);
  }
  return json;
}

Json config_json(const ConfigFile& file) {
  Json options = Json::array();
  for (const ConfigOption& each : file.options) {
    Json option = {{"option", each.flag}};
    if (!each.text.empty()) option["value"] = each.text;
    if (!each.key.empty()) option["key"] = each.key;  // absent: a default of the tool
    options.push_back(std::move(option));
  }
  Json irrelevant = Json::object(), approximated = Json::object();
  for (const ConfigKey& key : file.keys) {
    if (key.use == KeyUse::kIrrelevant) irrelevant[key.key] = key.why;
    if (key.use == KeyUse::kApproximated) approximated[key.key] = key.why;
  }
  return {{"file", file.file},
          {"format", file.format},
          {"program", file.program},
          {"options", std::move(options)},
          {"used", keys_of(file, KeyUse::kUsed)},
          {"irrelevant", std::move(irrelevant)},
          {"approximated", std::move(approximated)},
          {"left_out", keys_of(file, KeyUse::kLeftOut)}};
}

Json ranks_json(const Report& report) {
  Json json = Json::array();
  for (const RankRow& row : report.ranks) {
    Json rank = {{"rank", row.first},
                 {"count", row.count},
                 {"name", row.name},
                 {"largest", &row == &report.ranks[report.largest_rank]},
                 {"peak_allocated_bytes", row.peak_allocated},
                 {"peak_reserved_bytes", row.peak_reserved},
                 {"peak_phase", name_of(row.peak_phase)},
                 {"peak_operator", row.peak_operator}};
    if (row.device_used_bytes) rank["device_used_bytes"] = *row.device_used_bytes;
    if (!row.holds.empty()) rank["holds"] = row.holds;
    json.push_back(std::move(rank));
  }
  return json;
}

Json device_json(const Report& report) {
  const DeviceSpec& device = report.device;
  Json json = {{"name", device.name},
               {"description", device.description},
               {"memory_bytes", device.memory_bytes},
               {"assumed", report.device_assumed},
               {"validated", device.validated}};
  if (device.context_bytes) json["context_bytes"] = *device.context_bytes;
  return json;
}

Json types_json(const std::vector<WeightTypeTotal>& types) {
  Json json = Json::array();
  for (const WeightTypeTotal& each : types) {
    json.push_back(
        {{"dtype", each.type.name}, {"tensors", each.tensors}, {"parameters", each.parameters}, {"bytes", each.bytes}});
  }
  return json;
}

Json weights_json(const WeightsComparison& weights) {
  Json json = {{"path", weights.path},       {"files", weights.files},
               {"tensors", weights.tensors}, {"parameters", weights.parameters},
               {"bytes", weights.bytes},     {"dtypes", types_json(weights.types)},
               {"agree", weights.agrees()}};
  const auto add = [&](const char* key, const TensorGroup& group) {
    json[key] = {{"tensors", group.tensors}, {"parameters", group.parameters}, {"names", group.names}};
  };
  add("missing", weights.missing);
  add("unexpected", weights.unexpected);
  add("reshaped", weights.reshaped);
  add("copies", weights.copies);
  add("buffers", weights.buffers);
  return json;
}

Json accounting_json(const Accounting& accounting) {
  Json json = Json::array();
  const auto add = [&](std::string_view view, const std::vector<AccountingRow>& rows) {
    for (const AccountingRow& row : rows) {
      json.push_back({{"view", view},
                      {"name", row.name},
                      {"bytes_per_parameter", row.bytes_per_parameter},
                      {"total_bytes", row.total_bytes},
                      {"rule", row.rule}});
    }
  };
  add("classic", accounting.classic);
  add("profile", accounting.profile);
  add("alternative", accounting.alternatives);
  return json;
}

Json contributors_json(const Report& report) {
  Json json = Json::array();
  for (const PeakContributor& each : report.contributors) {
    json.push_back({{"category", name_of(each.category)},
                    {"operator", each.operator_chain},
                    {"blocks", each.blocks},
                    {"block_bytes", each.block_bytes},
                    {"total_bytes", each.total_bytes}});
  }
  return json;
}

Json cache_json(const KeyValueCacheSize& cache) {
  return {{"bytes", cache.bytes},
          {"bytes_per_token", cache.bytes_per_token},
          {"encoder_bytes", cache.encoder_bytes},
          {"sequences", cache.sequences},
          {"tokens", cache.tokens},
          {"layers", cache.layers},
          {"windowed_layers", cache.windowed}};
}

Json vllm_json(const VllmMemory& vllm) {
  return {{"validated", false},
          {"requested_bytes", vllm.requested},
          {"weights_bytes", vllm.weights},
          {"activations_bytes", vllm.activations},
          {"cache_bytes", vllm.cache},
          {"cached_tokens", vllm.cached_tokens},
          {"cache_bytes_per_token", vllm.cache_per_token},
          {"max_length", vllm.max_length},
          {"cache_bytes_of_longest", vllm.cache_of_longest},
          {"sequences", vllm.sequences},
          {"cache_bytes_of_all", vllm.cache_of_all},
          {"taken_before_bytes", vllm.taken_before},
          {"while_generating_bytes", vllm.while_generating},
          {"while_training_bytes", vllm.while_training},
          {"starts", vllm.starts},
          {"utilization",
           {{"least", vllm.utilization.least},
            {"least_for_all", vllm.utilization.least_for_all},
            {"most", vllm.utilization.most}}},
          {"notes", vllm.notes}};
}

Json memory_json(const Report& report, const RenderOptions& options) {
  const ReplayResult& memory = report.memory;
  Json json = {{"peak_allocated_bytes", memory.peak_allocated}, {"peak_reserved_bytes", memory.peak_reserved}};
  if (report.device_used_bytes) json["device_used_bytes"] = *report.device_used_bytes;
  json["managed_bytes"] = report.managed_bytes;
  json["exact_lower_bound_bytes"] = memory.exact_peak;
  json["fragmentation_bytes"] = fragmentation_bytes(report);
  json["reserved_at_peak_bytes"] = memory.reserved_at_peak;
  json["allocated_at_end_bytes"] = memory.allocated_at_end;
  json["reserved_at_end_bytes"] = memory.reserved_at_end;
  json["segments_at_peak"] = memory.segments_at_peak;
  for (const CategoryShare& share : category_shares(report)) json["categories"][share.name] = share.bytes;
  for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kOptimizer}) {
    json["phases"][std::string(name_of(phase))]["peak_bytes"] = memory.phase_peaks[static_cast<std::size_t>(phase)];
  }
  if (!report.run.trains() || (report.run.generates() && !report.run.uses_vllm())) {
    json["phases"]["decode"]["peak_bytes"] = memory.phase_peaks[static_cast<std::size_t>(Phase::kDecode)];
  }
  if (report.vllm) json["vllm"] = vllm_json(*report.vllm);
  if (report.kv_cache) json["kv_cache"] = cache_json(*report.kv_cache);
  json["peak"] = {
      {"phase", name_of(report.peak_phase)}, {"step", report.peak_step}, {"operator", report.peak_operator}};
  json["accounting"] = accounting_json(report.accounting);
  if (options.explain) json["contributors"] = contributors_json(report);
  return json;
}

Json stages_json(const std::vector<StageRow>& stages) {
  Json json = Json::array();
  for (const StageRow& row : stages) {
    Json stage = {{"name", row.name},
                  {"peak_allocated_bytes", row.peak_allocated},
                  {"peak_reserved_bytes", row.peak_reserved},
                  {"largest", row.is_largest},
                  {"lowered_by", row.lowered_by}};
    if (row.host_bytes > 0) {
      stage["host_bytes"] = row.host_bytes;
      stage["host_rule"] = row.host_rule;
    }
    json.push_back(std::move(stage));
  }
  return json;
}

Json epoch_json(const EpochMemory& epoch) {
  Json json = {{"steps", epoch.steps},
               {"simulated_steps", epoch.simulated},
               {"peak_step", epoch.peak_step},
               {"peak_rows", epoch.peak_rows},
               {"peak_columns", epoch.peak_columns},
               {"average_samples", epoch.average_samples},
               {"average_tokens", epoch.average_tokens},
               {"reserved_after_first_step_bytes", epoch.reserved_after_first_step},
               {"reserved_at_end_bytes", epoch.reserved_at_end},
               {"growing_steps", epoch.growing_steps}};
  if (epoch.growing_steps > 0) json["last_growing_step"] = epoch.last_growing_step;
  if (epoch.retrying_steps) json["retrying_steps"] = *epoch.retrying_steps;
  return json;
}

Json flops_json(const Report& report) {
  Json json = {{"total", total_flops(report)}};
  for (const FlopRow& row : report.flops) json["by_class"][std::string(name_of(row.operator_class))] = total_flops(row);
  const auto add_phase = [&](const char* phase, double FlopRow::*part) {
    for (const FlopRow& row : report.flops)
      json["by_phase"][phase][std::string(name_of(row.operator_class))] = row.*part;
  };
  add_phase("forward", &FlopRow::forward);
  add_phase("backward", &FlopRow::backward);
  add_phase("recomputation", &FlopRow::recomputation);
  add_phase("optimizer", &FlopRow::optimizer);
  for (const FlopRow& row : report.flops) {
    json["bytes_moved_by_class"][std::string(name_of(row.operator_class))] = row.bytes_moved;
  }
  return json;
}

Json time_json(const Throughput& time) {
  const StepTime& step = time.step;
  Json json = {{"step_seconds", step.step_seconds}, {"samples_per_second", time.samples_per_second}};
  if (time.tokens_per_second > 0) json["tokens_per_second"] = time.tokens_per_second;
  if (time.generation) {
    json["prefill_seconds"] = time.generation->prefill_seconds;
    json["seconds_per_token"] = time.generation->token_seconds;
  }
  json["mfu"] = time.mfu;
  json["hfu"] = time.hfu;
  json["model_flops"] = step.model_flops;
  json["hardware_flops"] = step.hardware_flops;
  json["peak_flops_per_second"] = step.peak_flops_per_second;
  json["by_phase"] = {{"forward_seconds", step.forward_seconds},
                      {"backward_seconds", step.backward_seconds},
                      {"optimizer_seconds", step.optimizer_seconds}};
  for (std::size_t i = 0; i < kTimeClassCount; ++i) {
    json["by_class"][std::string(name_of(static_cast<TimeClass>(i))) + "_seconds"] = step.by_class.at(i);
  }
  json["kernel_seconds"] = step.kernel_seconds;
  json["host_seconds"] = step.host_seconds;
  json["host_bound"] = step.host_bound();
  json["bound_by"] = name_of(step.bound());
  if (time.generation_steps > 0) {
    json["generation"] = {{"steps", time.generation_steps},
                          {"step_with_seconds", step.generating_step_seconds},
                          {"step_without_seconds", step.other_step_seconds}};
  }
  if (step.first_calls) {
    json["first_calls"] = {{"attention_plans", step.first_calls->plans},
                           {"products", step.first_calls->products},
                           {"step_of_seen_sizes_seconds", step.first_calls->seen_step_seconds},
                           {"step_of_new_sizes_seconds", step.first_calls->new_step_seconds}};
  }
  if (!step.host.empty()) json["host"] = step.host;
  if (step.hosts.most_seconds > 0) {
    json["on_measured_hosts"] = {{"least_seconds", step.hosts.least_seconds},
                                 {"least_host", step.hosts.least_host},
                                 {"most_seconds", step.hosts.most_seconds},
                                 {"most_host", step.hosts.most_host}};
  }
  if (!time.lacks.empty()) json["lacks"] = time.lacks;
  if (time.error) {
    json["error"] = {{"kind", time.error->kind},
                     {"median", time.error->median},
                     {"p90", time.error->p90},
                     {"runs", time.error->runs}};
  }
  for (const CostlyKernel& kernel : step.costliest) {
    Json row = {{"name", kernel.name},
                {"shape", kernel.shape},
                {"seconds", kernel.seconds},
                {"calls", kernel.calls},
                {"bytes_per_second", kernel.bytes / kernel.seconds},
                {"possible_bytes_per_second", kernel.possible_bytes_per_second}};
    if (kernel.possible_flops_per_second > 0) {
      row["flops_per_second"] = kernel.flops / kernel.seconds;
      row["possible_flops_per_second"] = kernel.possible_flops_per_second;
    }
    json["costliest_kernels"].push_back(std::move(row));
  }
  json["communication_seconds"] = step.communication_seconds;
  json["tensor_core_share"] = step.tensor_core_share();
  json["kernels"] = step.kernels;
  if (time.input_seconds) {
    json["input_seconds"] = *time.input_seconds;
    json["workers_needed"] = time.workers_needed;
  }
  if (time.energy_joules > 0) json["energy_joules_at_tdp"] = time.energy_joules;
  json["predicted_from_datasheet"] = !time.rates_from.empty();
  if (!time.rates_from.empty()) json["rates_from"] = time.rates_from;
  return json;
}

Json training_json(const TrainingRun& run) {
  Json json = {{"tokens", run.tokens}, {"steps", run.steps}, {"seconds", run.seconds}, {"gpu_hours", run.gpu_hours}};
  if (run.usd_per_hour > 0) {
    json["usd_per_gpu_hour"] = run.usd_per_hour;
    json["usd"] = run.usd;
    json["price_source"] = run.price_source;
  }
  if (run.energy_kwh > 0) json["energy_kwh_at_tdp"] = run.energy_kwh;
  return json;
}

Json fits_json(const std::vector<FitRow>& rows) {
  Json json = Json::array();
  for (const FitRow& row : rows) {
    json.push_back({{"gpu", row.gpu},
                    {"memory_bytes", row.memory_bytes},
                    {"needed_bytes", row.needed_bytes},
                    {"needed_error_bytes", row.needed_error},
                    {"verdict", name_of(row.verdict)}});
  }
  return json;
}

Json host_memory_json(const HostMemory& host) {
  Json rows = Json::array();
  for (const HostMemoryRow& row : host.rows) {
    rows.push_back({{"name", row.name}, {"bytes", row.bytes}, {"pinned", row.pinned}, {"rule", row.rule}});
  }
  return {{"total_bytes", host.total}, {"pinned_bytes", host.pinned}, {"rows", std::move(rows)}};
}

Json host_fit_json(const HostFit& fit) {
  return {{"stage", fit.stage}, {"needed_bytes", fit.needed}, {"available_bytes", fit.available},
          {"ranks", fit.ranks}, {"source", fit.source},       {"fits", fit.suffices()}};
}

Json versions_json(const Report& report) {
  Json versions = Json::object();
  for (const auto& [software, version] : report.versions) versions[software] = version;
  return versions;
}

// A path given by the user may hold bytes that are not UTF-8: they are replaced, not refused.
std::string dumped(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

std::string render_json(const Report& report, const RenderOptions& options) {
  Json json = {{"schema_version", kJsonSchemaVersion},
               {"profile", report.profile},
               {"versions", versions_json(report)},
               {"model", model_json(report)},
               {"run", run_json(report)},
               {"device", device_json(report)},
               {"verdict", name_of(report.verdict)},
               {"needed_bytes", report.needed()},
               {"needed_error_bytes", report.needed_error},
               {"params",
                {{"total", report.parameters_total},
                 {"trainable", report.parameters_trainable},
                 {"active", report.parameters_active}}},
               {"memory", memory_json(report, options)},
               {"flops", flops_json(report)}};
  if (report.full_card) {
    json["full_card"] = {{"runs", report.full_card->runs}, {"allocator_retries", report.full_card->retries}};
  }
  if (report.time) json["time"] = time_json(*report.time);
  if (report.training) json["training"] = training_json(*report.training);
  if (report.concurrent_sequences) json["concurrent_sequences"] = *report.concurrent_sequences;
  if (report.weights) json["weights_on_disk"] = weights_json(*report.weights);
  if (!report.stages.empty()) json["stages"] = stages_json(report.stages);
  if (report.epoch) json["epoch"] = epoch_json(*report.epoch);
  if (!report.host_memory.rows.empty()) json["host_memory"] = host_memory_json(report.host_memory);
  if (report.host_fit) json["host_fit"] = host_fit_json(*report.host_fit);
  if (!report.ranks.empty()) json["ranks"] = ranks_json(report);
  if (!report.remedies.empty()) json["remedies"] = remedies_json<Json>(report.remedies);
  if (!report.other_gpus.empty()) json["other_gpus"] = fits_json(report.other_gpus);
  if (report.config) json["config"] = config_json(*report.config);
  json["assumptions"] = report.assumptions;
  json["not_modelled"] = report.not_modelled;
  for (const OpaqueCalls& each : report.opaque) {
    json["opaque"].push_back({{"function", each.function}, {"calls", each.calls}});
  }
  return dumped(json);
}

std::string render_json(const Weights& weights) {
  return dumped({{"schema_version", kJsonSchemaVersion},
                 {"path", weights.path},
                 {"files", weights.files},
                 {"tensors", weights.tensors.size()},
                 {"parameters", weights.parameters},
                 {"bytes", weights.bytes},
                 {"dtypes", types_json(totals_by_type(weights))}});
}

std::string render_json(const std::vector<ModelListing>& models) {
  Json list = Json::array();
  for (const ModelListing& each : models) {
    Json json = {{"name", each.name}, {"model_type", each.model_type}};
    if (each.published_parameters) json["published_parameters"] = *each.published_parameters;
    if (each.parameters) json["parameters"] = *each.parameters;
    json["program"] = each.is_program;
    json["tasks"] = names_of(each.tasks);
    json["measured_tasks"] = names_of(each.measured);
    json["aliases"] = each.aliases;
    if (!each.stands_for.empty()) json["stands_for"] = each.stands_for;
    if (!each.text_of.empty()) json["text_of"] = each.text_of;
    json["source"] = each.source;
    json["date"] = each.date;
    json["recalled"] = each.recalled;
    list.push_back(std::move(json));
  }
  return dumped({{"schema_version", kJsonSchemaVersion}, {"models", std::move(list)}});
}

std::string render_json(const std::vector<DeviceListing>& devices) {
  Json list = Json::array();
  for (const DeviceListing& each : devices) {
    Json json = {{"name", each.name}, {"description", each.description}, {"memory_bytes", each.memory_bytes}};
    if (each.memory_bandwidth_bytes_per_second > 0) {
      json["memory_bandwidth_bytes_per_second"] = each.memory_bandwidth_bytes_per_second;
    }
    if (each.half_flops_per_second > 0) json["half_flops_per_second"] = each.half_flops_per_second;
    json["aliases"] = each.aliases;
    json["validated"] = each.validated;
    json["source"] = each.source;
    json["date"] = each.date;
    json["recalled"] = each.recalled;
    list.push_back(std::move(json));
  }
  return dumped({{"schema_version", kJsonSchemaVersion}, {"gpus", std::move(list)}});
}

}  // namespace memcalc
