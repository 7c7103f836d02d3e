#include "support/measured_case.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <variant>

#include "memcalc/base/error.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/registry.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/spec/run_options.h"
#include "support/parallel_case.h"
#include "support/paths.h"

namespace memcalc::measured {
namespace {

const JsonObject& models() {
  static const JsonDocument document = JsonDocument::read_file((test::measured_dir() / "models.json").string());
  static const JsonObject models = document.root().required_object("models");
  return models;
}

/// By id: steps that the loss scaler of a recorded run skipped.
const JsonObject& skipped_steps() {
  static const JsonDocument document = JsonDocument::read_file((test::measured_dir() / "skipped_steps.json").string());
  static const JsonObject rows = document.root().required_object("rows");
  return rows;
}

// The one case that replaces keys of a model's config makes SmolLM2 of a LLaMA. models.json holds the result, since a
// JsonObject cannot be merged; this checks that it is the same.
std::string model_name(const JsonObject& case_json) {
  const std::string name = case_json.required_string("model");
  if (!case_json.has("config")) return name;
  const JsonObject replaced = case_json.required_object("config");
  if (replaced.has("tie_word_embeddings")) return name;  // pipelines: their stages share no weight
  const std::string result = "smollm2-135m";
  const JsonObject config = models().required_object(result).required_object("config");
  for (const std::string& key : replaced.keys()) {
    if (replaced.required_int(key) != config.required_int(key)) {
      throw replaced.error(key, "is not that of " + result + " in models.json");
    }
  }
  return result;
}

template <typename Enum, std::size_t kSize>
std::optional<Enum> choice(const JsonObject& case_json, std::string_view key,
                           const std::array<std::string_view, kSize>& names) {
  const std::optional<std::string> text = case_json.optional_choice(key, names);
  return text ? enum_from<Enum>(names, *text) : std::nullopt;
}

std::optional<Optimizer> optimizer_of(const JsonObject& case_json, Loop loop) {
  const char* key = loop == Loop::kTrainer ? "optim" : "optimizer";
  const std::optional<std::string> name = case_json.optional_string(key);
  if (!name || name->starts_with("adamw-offload")) return std::nullopt;  // torchao's, around the default
  const std::optional<Optimizer> optimizer = optimizer_from(*name);
  if (!optimizer) throw case_json.error_found(key, "the name of an optimizer");
  return optimizer;
}

const SpecRegistry& registry() {
  static const SpecRegistry registry(test::specs_dir().string());
  return registry;
}

// A model that models.json does not list is one of specs/models by its name (harness/models.py, Registry): built from
// the same keys, so that its head is tied as transformers ties it.
bool is_of_registry(const std::string& name) {
  return std::filesystem::exists(test::specs_dir() / "models" / (name + ".json"));
}

ModelSpec registry_model(const std::string& name) {
  ModelSpec model = registry().model(name);
  tie_head_as_transformers(model);
  return model;
}

// Models in plain torch (harness/custom.py, layers.py): a file of layers says the same.
constexpr std::string_view kCustom = "custom-";

std::string custom_file(const std::string& model) {
  const std::string name = model.substr(kCustom.size()) + ".json";
  for (const auto& directory : {test::specs_dir() / "examples", test::measured_dir() / "layers"}) {
    if (std::filesystem::exists(directory / name)) return (directory / name).string();
  }
  return "";
}

MeasuredCase custom_case(const JsonObject& case_json, const std::string& model) {
  MeasuredCase result;
  result.id = case_json.required_string("id");
  result.model = model;
  result.spec = registry().model(custom_file(model));
  RunOptions options;
  options.batch_size = case_json.required_int("batch");
  options.sequence_length = case_json.optional_int("seq");
  options.image_size = case_json.optional_int("image");
  options.precision = choice<Precision>(case_json, "precision", kPrecisionNames);
  options.optimizer = optimizer_of(case_json, Loop::kBare);
  options.checkpointing = choice<Checkpointing>(case_json, "ckpt", kCheckpointingNames);
  result.run = resolve(result.spec, options).run;
  return result;
}

// harness/vision.py: sizes, and transformers' defaults for the rest.
constexpr std::string_view kVitBase =
    R"("hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072)";
constexpr std::string_view kVitLarge =
    R"("hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096)";

// Nothing for a name that is no image model, or none that memcalc has.
std::optional<ModelSpec> vision_model(const std::string& name) {
  if (is_of_registry(name)) {
    ModelSpec model = registry().model(name);
    if (model.model_type == "torchvision" || model.model_type == "vit") return model;
    return std::nullopt;
  }
  const bool deit = name.starts_with("deit-");
  if (deit || name.starts_with("vit-")) {
    const std::string config = R"({"model_type": ")" + std::string(deit ? "deit" : "vit") +
                               R"(", "image_size": 224, "patch_size": 16, )" +
                               std::string(name.ends_with("large") ? kVitLarge : kVitBase) + "}";
    return model_from_hf_config(JsonDocument::parse(config, name).root(), name);
  }
  return std::nullopt;
}

// "full", "selective", "every-2".
void set_checkpointing(const JsonObject& case_json, RunOptions& options) {
  const std::string text = case_json.optional_string("ckpt").value_or("none");
  constexpr std::string_view kEvery = "every-";
  if (text.starts_with(kEvery)) {
    options.checkpointing = Checkpointing::kFull;
    options.checkpoint_every = std::stoll(text.substr(kEvery.size()));
  } else {
    options.checkpointing = choice<Checkpointing>(case_json, "ckpt", kCheckpointingNames);
  }
}

void set_skipped_steps(const std::string& id, RunOptions& options) {
  if (skipped_steps().has(id)) options.skipped_steps = skipped_steps().required_int(id);
}

bool flag(const JsonObject& case_json, std::string_view key) { return case_json.optional_bool(key).value_or(false); }

std::vector<std::string> strings(const JsonObject& case_json, std::string_view key) {
  return case_json.optional_strings(key);
}

std::optional<Quantization> quantization_of(const JsonObject& case_json) {
  const auto quantized = case_json.optional_string("quant");
  if (!quantized) return std::nullopt;
  return *quantized == "int8"     ? Quantization::kInt8
         : *quantized == "nf4-dq" ? Quantization::kNf4Double
                                  : Quantization::kNf4;
}

// finetune.py of the harness: peft's LoraConfig, bitsandbytes' BitsAndBytesConfig.
void set_fine_tuning(const JsonObject& case_json, RunOptions& options) {
  options.lora_rank = case_json.optional_int("lora");
  options.lora_targets = strings(case_json, "lora_targets");
  options.lora_dropout = case_json.optional_double("lora_dropout");
  options.lora_in_base_dtype = case_json.has("lora_dtype");
  options.lora_trains_head = case_json.has("lora_task");
  options.liger = flag(case_json, "liger");
  options.frozen = strings(case_json, "freeze");
  options.quantization = quantization_of(case_json);
  options.packs_head = flag(case_json, "quant_head");
  if (options.quantization) options.prepares_for_kbit = flag(case_json, "kbit");
}

void set_inference(const JsonObject& case_json, RunOptions& options) {
  options.inference = Inference{.new_tokens = case_json.optional_int("new_tokens").value_or(0),
                                .beams = case_json.optional_int("beams").value_or(1)};
  options.quantization = quantization_of(case_json);
  if (flag(case_json, "offload_weights")) options.parallel.offload_parameters = OffloadTo::kHost;
}

/// "parts": "layers" where each layer was compiled.
void set_compile(const JsonObject& case_json, RunOptions& options) {
  options.compile = flag(case_json, "compile");
  if (case_json.optional_string("parts") == "layers") options.compiled_parts = CompiledParts::kLayers;
}

}  // namespace

bool is_inference(const JsonObject& case_json) {
  return case_json.optional_string("mode").value_or("train") == "infer";
}

bool is_modelled(const JsonObject& case_json) {
  if (case_json.required_string("id").find("compile") != std::string::npos) return false;
  const std::string model = case_json.required_string("model");
  return models().has(model) || is_of_registry(model) || vision_model(model) ||
         (model.starts_with(kCustom) && !custom_file(model).empty());
}

MeasuredCase measured_case(const JsonObject& case_json, Loop loop, const std::string& gpu) {
  const std::string name = case_json.required_string("model");
  if (name.starts_with(kCustom)) {
    MeasuredCase custom = custom_case(case_json, name);
    custom.device = &measured_device(gpu);
    return custom;
  }
  if (is_vision_case(case_json)) return vision_case(case_json, loop, gpu);
  MeasuredCase result;
  result.device = &measured_device(gpu);
  result.id = case_json.required_string("id");
  result.model = model_name(case_json);
  RunOptions options;
  if (models().has(result.model)) {
    const JsonObject model = models().required_object(result.model);
    result.spec = model_from_hf_config(model.required_object("config"), result.model);
    options.task = choice<Task>(model, "task", kTaskNames);
  } else {
    result.spec = registry_model(result.model);
  }
  if (const auto layers = case_json.optional_int("layers")) set_layers(result.spec, *layers);

  if (case_json.has("task")) options.task = choice<Task>(case_json, "task", kTaskNames);
  options.batch_size = case_json.required_int("batch");
  options.sequence_length = case_json.required_int("seq");
  options.target_sequence_length = case_json.optional_int("target_seq");
  options.precision = choice<Precision>(case_json, "precision", kPrecisionNames).value_or(Precision::kFp32);
  options.attention = choice<Attention>(case_json, "attn", kAttentionNames);
  options.padding = flag(case_json, "padding");
  options.expandable_segments = flag(case_json, "expandable");
  if (is_inference(case_json)) {
    set_inference(case_json, options);
    result.run = resolve(result.spec, options).run;
    return result;
  }
  options.loop = loop;
  options.optimizer = optimizer_of(case_json, loop);
  set_checkpointing(case_json, options);
  options.accumulation_steps = case_json.optional_int("accum");
  options.max_grad_norm = case_json.optional_double("max_grad_norm");
  if (flag(case_json, "clip")) options.max_grad_norm = 1.0;
  options.offload_activations = flag(case_json, "offload_activations");
  set_compile(case_json, options);
  const std::string optimizer = case_json.optional_string("optimizer").value_or("");
  options.offload_optimizer = optimizer.starts_with("adamw-offload");
  options.offload_gradients = optimizer == "adamw-offload-gradients";
  options.dropout = case_json.optional_double("dropout");
  // A bare loop leaves config.use_cache on; checkpointing switches it off, and so does the Trainer.
  const bool decodes = is_decoder(result.spec) || options.task == Task::kSeq2Seq || options.task == Task::kSpeech;
  options.use_cache = loop == Loop::kBare && decodes &&
                      options.checkpointing.value_or(Checkpointing::kNone) == Checkpointing::kNone &&
                      case_json.optional_bool("use_cache").value_or(true);
  set_fine_tuning(case_json, options);
  set_parallel(case_json, options);
  set_skipped_steps(result.id, options);
  result.run = resolve(result.spec, options).run;
  return result;
}

bool is_vision_case(const JsonObject& case_json) {
  return vision_model(case_json.required_string("model")).has_value();
}

MeasuredCase vision_case(const JsonObject& case_json, Loop loop, const std::string& gpu) {
  MeasuredCase result;
  result.device = &measured_device(gpu);
  result.id = case_json.required_string("id");
  result.model = case_json.required_string("model");
  result.spec = vision_model(result.model).value();
  if (const auto layers = case_json.optional_int("layers")) set_layers(result.spec, *layers);
  RunOptions options{.task = Task::kImageClassification, .batch_size = case_json.required_int("batch")};
  options.image_size = case_json.optional_int("image").value_or(224);
  options.precision = choice<Precision>(case_json, "precision", kPrecisionNames);
  if (is_inference(case_json)) {
    set_inference(case_json, options);
    result.run = resolve(result.spec, options).run;
    return result;
  }
  options.loop = loop;
  options.optimizer = optimizer_of(case_json, loop);
  options.attention = choice<Attention>(case_json, "attn", kAttentionNames);
  options.checkpointing = choice<Checkpointing>(case_json, "ckpt", kCheckpointingNames);
  options.accumulation_steps = case_json.optional_int("accum");
  set_compile(case_json, options);
  if (flag(case_json, "clip")) options.max_grad_norm = 1.0;
  set_skipped_steps(result.id, options);
  set_parallel(case_json, options);
  result.run = resolve(result.spec, options).run;
  return result;
}

const DeviceSpec& measured_device(const std::string& gpu) {
  static std::map<std::string, DeviceSpec> devices;
  auto device = devices.find(gpu);
  if (device == devices.end()) device = devices.emplace(gpu, registry().device(gpu)).first;
  return device->second;
}

}  // namespace memcalc::measured
