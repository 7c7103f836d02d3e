#include "support/measured_case.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <variant>

#include "memcalc/base/error.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/registry.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/spec/run_options.h"
#include "support/paths.h"

namespace memcalc::measured {
namespace {

const JsonObject& models() {
  static const JsonDocument document = JsonDocument::read_file((test::measured_dir() / "models.json").string());
  static const JsonObject models = document.root().required_object("models");
  return models;
}

void set_layers(ModelSpec& spec, std::int64_t layers) {
  std::visit(
      [layers](auto& architecture) {
        if constexpr (requires { architecture.n_layer; }) {
          architecture.n_layer = layers;
        } else if constexpr (requires { architecture.num_hidden_layers; }) {
          architecture.num_hidden_layers = layers;
        } else if constexpr (requires { architecture.num_decoder_layers; }) {
          architecture.num_layers = layers;
          architecture.num_decoder_layers = layers;
        }
        if constexpr (requires { architecture.sliding_layers; }) {
          if (!architecture.sliding_layers.empty()) {
            architecture.sliding_layers.resize(static_cast<std::size_t>(layers));  // the pattern starts at layer 0
          }
        }
      },
      spec.architecture);
}

// The one case that replaces keys of a model's config makes SmolLM2 of a LLaMA. models.json holds the result, since a
// JsonObject cannot be merged; this checks that it is the same.
std::string model_name(const JsonObject& case_json) {
  const std::string name = case_json.required_string("model");
  if (!case_json.has("config")) return name;
  const JsonObject replaced = case_json.required_object("config");
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
  if (!name) return std::nullopt;
  const std::optional<Optimizer> optimizer = optimizer_from(*name);
  if (!optimizer) throw case_json.error_found(key, "the name of an optimizer");
  return optimizer;
}

bool flag(const JsonObject& case_json, std::string_view key) { return case_json.optional_bool(key).value_or(false); }

}  // namespace

bool is_modelled(const JsonObject& case_json) {
  const std::string id = case_json.required_string("id");
  for (const std::string_view excluded : {"lora", "compile", "infer", "gen-"}) {
    if (id.find(excluded) != std::string::npos) return false;
  }
  return models().has(case_json.required_string("model"));
}

MeasuredCase measured_case(const JsonObject& case_json, Loop loop, const std::string& gpu) {
  MeasuredCase result;
  result.device = &measured_device(gpu);
  result.id = case_json.required_string("id");
  result.model = model_name(case_json);
  const JsonObject model = models().required_object(result.model);
  result.spec = model_from_hf_config(model.required_object("config"), result.model);
  if (const auto layers = case_json.optional_int("layers")) set_layers(result.spec, *layers);

  RunOptions options;
  options.task = choice<Task>(model, "task", kTaskNames);
  options.batch_size = case_json.required_int("batch");
  options.sequence_length = case_json.required_int("seq");
  options.precision = choice<Precision>(case_json, "precision", kPrecisionNames).value_or(Precision::kFp32);
  options.loop = loop;
  options.optimizer = optimizer_of(case_json, loop);
  options.attention = choice<Attention>(case_json, "attn", kAttentionNames);
  options.checkpointing = choice<Checkpointing>(case_json, "ckpt", kCheckpointingNames);
  options.accumulation_steps = case_json.optional_int("accum");
  options.max_grad_norm = case_json.optional_double("max_grad_norm");
  if (flag(case_json, "clip")) options.max_grad_norm = 1.0;
  options.padding = flag(case_json, "padding");
  options.dropout = case_json.optional_double("dropout");
  // A bare loop leaves config.use_cache on; checkpointing switches it off, and so does the Trainer.
  const bool decodes = options.task == Task::kCausalLm || options.task == Task::kSeq2Seq;
  options.use_cache =
      loop == Loop::kBare && decodes && options.checkpointing.value_or(Checkpointing::kNone) == Checkpointing::kNone;
  result.run = resolve(result.spec, options).run;
  return result;
}

const DeviceSpec& measured_device(const std::string& gpu) {
  static std::map<std::string, DeviceSpec> devices;
  auto device = devices.find(gpu);
  if (device == devices.end()) {
    device = devices.emplace(gpu, SpecRegistry(test::specs_dir().string()).device(gpu)).first;
  }
  return device->second;
}

}  // namespace memcalc::measured
