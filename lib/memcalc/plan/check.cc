#include "memcalc/plan/check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <variant>

#include "memcalc/memcalc.h"
#include "memcalc/report/quantity.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/parallel_names.h"

namespace memcalc {

namespace {

template <typename Enum, std::size_t kSize>
std::optional<Enum> choice(const JsonObject& json, std::string_view key,
                           const std::array<std::string_view, kSize>& names) {
  const std::optional<std::string> text = json.optional_choice(key, names);
  return text ? enum_from<Enum>(names, *text) : std::nullopt;
}

bool is_set(const JsonObject& json, std::string_view key) {
  return json.has(key) && json.optional_bool(key).value_or(false);
}

// The parallel part of a case of harness/measure_dist.py: "world" cards of one host.
void set_parallel(const JsonObject& run, RunOptions& options) {
  const std::int64_t world = run.required_int("world", {1, 1'000'000});
  const std::string mode = run.required_string("mode");
  for (const char* key : {"offload", "rotate", "schedule", "reduce", "static_graph", "lora"}) {
    if (run.has(key)) throw Error(ErrorCode::kUnsupported, std::string("a case of several cards with \"") + key + "\"");
  }
  options.gpus = world;
  if (mode == "tp") {
    options.parallel.tensor = world;
    return;
  }
  const auto named = enum_from<DataParallel>(kDataParallelNames, mode);
  if (!named) throw Error(ErrorCode::kUnsupported, "a case of several cards with mode " + mode);
  options.parallel.data_parallel = *named;
  options.parallel.ddp_bucket_view = is_set(run, "bucket_view");
  options.parallel.hsdp_shard = run.optional_int("hsdp").value_or(0);
  if (run.has("reshard")) options.parallel.reshard_after_forward = is_set(run, "reshard");
  if (is_set(run, "mp")) {
    options.parallel.fsdp_param_dtype = DType::kBFloat16;
    options.parallel.fsdp_reduce_dtype = DType::kFloat32;
  }
}

class Checker {
 public:
  Checker(const SpecRegistry& registry, const std::string& models) : registry_(registry) {
    if (!models.empty()) models_ = JsonDocument::parse(models, "the models");
  }

  CheckedRow row(const JsonObject& json) const {
    const JsonObject run = json.required_object("case");
    CheckedRow row{.id = run.required_string("id")};
    row.measured.peak_allocated = json.optional_int("peak_allocated");
    row.measured.peak_reserved = json.optional_int("peak_reserved");
    if (const auto step = json.optional_double("step_ms_median")) row.measured.step_seconds = *step * 1e-3;
    try {
      predict(json, run, row);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
      row.refused = error.what();
    }
    return row;
  }

 private:
  void predict(const JsonObject& json, const JsonObject& run, CheckedRow& row) const;
  [[nodiscard]] ModelSpec model_of(const JsonObject& run, RunOptions& options) const;

  const SpecRegistry& registry_;
  std::optional<JsonDocument> models_;
};

ModelSpec Checker::model_of(const JsonObject& run, RunOptions& options) const {
  const std::string name = run.required_string("model");
  const std::optional<std::int64_t> layers = run.optional_int("layers", {1, 10'000});
  if (run.has("config")) throw Error(ErrorCode::kUnsupported, "a case that changes the model's config");
  if (models_) {
    const JsonObject models = models_->root().required_object("models");
    if (models.has(name)) {
      const JsonObject entry = models.required_object(name);
      options.task = choice<Task>(entry, "task", kTaskNames);
      ModelSpec model = model_from_hf_config(entry.required_object("config"), name);
      if (layers) set_layers(model, *layers);
      return model;
    }
  }
  ArchitectureChanges changes;
  changes.layers = layers;
  return registry_.model(name, changes);
}

void Checker::predict(const JsonObject& json, const JsonObject& run, CheckedRow& row) const {
  const bool several_cards = run.has("world");
  if (run.has("compile")) throw Error(ErrorCode::kUnsupported, "a case with \"compile\"");
  if (run.has("mode") && !several_cards) throw Error(ErrorCode::kUnsupported, "a case with \"mode\"");
  RunOptions options;
  if (several_cards) set_parallel(run, options);
  const ModelSpec model = model_of(run, options);
  if (run.has("task")) options.task = choice<Task>(run, "task", kTaskNames);
  const bool trainer = json.optional_string("loop").value_or("bare") == "trainer";
  options.loop = trainer ? Loop::kTrainer : Loop::kBare;
  options.batch_size = run.required_int("batch");
  options.sequence_length = run.optional_int("seq");
  options.target_sequence_length = run.optional_int("target_seq");
  options.image_size = run.optional_int("image");
  if (model.model_type == "torchvision" || model.model_type == "vit" || model.model_type == "deit") {
    options.sequence_length.reset();
    if (!options.image_size) options.image_size = 224;
  }
  options.precision = choice<Precision>(run, "precision", kPrecisionNames).value_or(Precision::kFp32);
  if (const auto name = run.optional_string(trainer ? "optim" : "optimizer")) {
    options.optimizer = optimizer_from(*name);
    if (!options.optimizer) throw run.error_found(trainer ? "optim" : "optimizer", "the name of an optimizer");
  }
  options.checkpointing = choice<Checkpointing>(run, "ckpt", kCheckpointingNames);
  options.attention = choice<Attention>(run, "attn", kAttentionNames);
  options.accumulation_steps = run.optional_int("accum");
  if (is_set(run, "clip")) options.max_grad_norm = 1.0;
  options.padding = is_set(run, "padding");
  options.dropout = run.optional_double("dropout");
  options.lora_rank = run.optional_int("lora");
  ResolvedRun resolved = resolve(model, options);
  // A bare loop over a decoder leaves config.use_cache on.
  const bool decodes = is_decoder(model) || resolved.run.task == Task::kSeq2Seq || resolved.run.task == Task::kSpeech;
  resolved.run.use_cache = !trainer && decodes && resolved.run.checkpointing == Checkpointing::kNone;
  const Report report =
      estimate(model, resolved.run, registry_.device(json.optional_string("gpu").value_or(kAssumedDevice)));
  row.predicted.peak_allocated = report.memory.peak_allocated;
  row.predicted.peak_reserved = report.memory.peak_reserved;
  if (report.time) {
    row.predicted.step_seconds = report.time->step.step_seconds;
    row.host_bound = report.time->step.host_bound();
  }
}

// Relative error; nothing where one of the two is missing.
template <typename Number>
std::optional<double> error_of(const std::optional<Number>& predicted, const std::optional<Number>& measured) {
  if (!predicted || !measured || *measured == 0) return std::nullopt;
  return static_cast<double>(*predicted) / static_cast<double>(*measured) - 1;
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size()));
  return values[std::min(at, values.size() - 1)];
}

struct Errors {
  std::vector<double> sizes;
  std::size_t below = 0;  // predicted less than was measured
  std::size_t exact = 0;

  void add(const std::optional<double>& error) {
    if (!error) return;
    sizes.push_back(std::abs(*error));
    below += *error < 0 ? 1 : 0;
    exact += *error == 0 ? 1 : 0;
  }

  void tell(const std::string& key, const std::string& label, Answer& answer) const {
    if (sizes.empty()) return;
    const auto rows = static_cast<double>(sizes.size());
    answer.facts.push_back({key + "_median_error", label + ", median error", Unit::kShare, quantile(sizes, 0.5)});
    answer.facts.push_back({key + "_p90_error", label + ", p90 error", Unit::kShare, quantile(sizes, 0.9)});
    answer.facts.push_back(
        {key + "_under_predicted", label + ", under-predicted", Unit::kShare, static_cast<double>(below) / rows});
    if (key != "step") {
      answer.facts.push_back(
          {key + "_exact", label + ", right to the byte", Unit::kCount, static_cast<std::int64_t>(exact)});
    }
  }
};

Value value_of(const std::optional<Bytes>& bytes) { return bytes ? Value(*bytes) : Value(); }
Value value_of(const std::optional<double>& number) { return number ? Value(*number) : Value(); }

}  // namespace

std::vector<CheckedRow> check_rows(const SpecRegistry& registry, const std::string& rows, const std::string& name,
                                   const std::string& models) {
  const Checker checker(registry, models);
  std::vector<CheckedRow> checked;
  std::size_t line = 0;
  for (std::size_t begin = 0; begin < rows.size();) {
    const std::size_t end = std::min(rows.find('\n', begin), rows.size());
    const std::string_view text = std::string_view(rows).substr(begin, end - begin);
    begin = end + 1;
    ++line;
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const JsonDocument document = JsonDocument::parse(text, name + ":" + std::to_string(line));
    if (!document.root().has("error")) checked.push_back(checker.row(document.root()));
  }
  if (checked.empty()) throw Error(ErrorCode::kInput, name + ": found no measured rows");
  return checked;
}

Answer answer_of(const std::vector<CheckedRow>& rows, const CheckTolerance& tolerance) {
  Answer answer{.command = "check"};
  answer.columns = {{"case", "case"},
                    {"allocated_bytes", "allocated", Unit::kBytes, true},
                    {"allocated_error", "error", Unit::kShare},
                    {"reserved_bytes", "reserved", Unit::kBytes, true},
                    {"reserved_error", "error", Unit::kShare},
                    {"step_seconds", "step", Unit::kSeconds},
                    {"predicted_step_seconds", "predicted", Unit::kSeconds, true},
                    {"step_error", "error", Unit::kShare},
                    {"host_bound", "host", Unit::kYesNo}};
  Errors allocated, reserved, step;
  std::size_t within = 0, answered = 0, host_bound = 0;
  for (const CheckedRow& row : rows) {
    if (!row.refused.empty()) {
      answer.notes.push_back(row.id + ": " + row.refused);
      continue;
    }
    ++answered;
    const auto of_allocated = error_of(row.predicted.peak_allocated, row.measured.peak_allocated);
    const auto of_reserved = error_of(row.predicted.peak_reserved, row.measured.peak_reserved);
    const auto of_step = error_of(row.predicted.step_seconds, row.measured.step_seconds);
    allocated.add(of_allocated);
    reserved.add(of_reserved);
    step.add(of_step);
    host_bound += row.host_bound ? 1 : 0;
    const auto accepted = [](const std::optional<double>& error, double most) {
      return most <= 0 || !error || std::abs(*error) <= most;
    };
    within += accepted(of_allocated, tolerance.allocated) && accepted(of_reserved, tolerance.reserved) &&
                      accepted(of_step, tolerance.step)
                  ? 1
                  : 0;
    answer.rows.push_back({row.id, value_of(row.measured.peak_allocated), value_of(of_allocated),
                           value_of(row.measured.peak_reserved), value_of(of_reserved),
                           value_of(row.measured.step_seconds), value_of(row.predicted.step_seconds), value_of(of_step),
                           row.host_bound});
  }
  const double share = answered > 0 ? static_cast<double>(within) / static_cast<double>(answered) : 0;
  answer.positive = share >= tolerance.share;
  answer.headline = std::to_string(within) + " of " + std::to_string(answered) + " rows are within the tolerance; " +
                    std::to_string(rows.size() - answered) + " were refused.";
  allocated.tell("allocated", "allocated", answer);
  reserved.tell("reserved", "reserved", answer);
  step.tell("step", "step time", answer);
  answer.facts.push_back({"host_bound_rows", "bound by the host", Unit::kCount, static_cast<std::int64_t>(host_bound)});
  answer.facts.push_back({"within_tolerance", "within tolerance", Unit::kShare, share});
  return answer;
}

}  // namespace memcalc
