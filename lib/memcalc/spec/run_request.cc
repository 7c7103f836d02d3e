#include "memcalc/spec/run_request.h"

#include <fmt/core.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/base/error.h"
#include "memcalc/spec/architecture_keys.h"
#include "memcalc/spec/card_description.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/image_text_spec.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/registry.h"
#include "memcalc/spec/router_loss.h"
#include "memcalc/spec/run_fields.h"

namespace memcalc {
namespace {

/// "A100" is a card of 40 GB and one of 80: says which of them it was taken for.
void note_card(const std::string& asked, const DeviceSpec& device, std::vector<std::string>& assumptions) {
  if (asked.empty()) return;
  const bool is_file = asked.find('/') != std::string::npos || asked.ends_with(".json");
  if (is_file || ascii_lower(asked) == device.name) return;
  assumptions.push_back(fmt::format("--gpu {} is taken for {} with {:.1f} GiB", one_line(asked), device.name,
                                    in_gib(device.memory_bytes)));
}

/// People always pass these; what they ask for happens in any case, or is not counted.
void note_without_effect(const RunRequest& request, const ModelSpec& model, const RunSpec& run,
                         std::vector<std::string>& assumptions) {
  if (request.run.pin_memory && run.parallel.framework() == Framework::kMegatron) {
    assumptions.emplace_back("--pin-memory changes nothing here: the batches of Megatron's loader are not counted");
  }
  if (request.run.no_router_loss && !returns_router_logits(model)) {
    assumptions.emplace_back("--no-router-loss changes nothing here: this model returns no logits of a router");
  }
  if (!request.run.max_grad_norm) return;
  if (run.parallel.framework() == Framework::kDeepSpeed) {
    assumptions.emplace_back(
        "--clip-grad changes no byte: DeepSpeed's step computes the norm and scales the gradients in any case");
  } else if (run.parallel.framework() == Framework::kMegatron) {
    assumptions.emplace_back("--clip-grad changes nothing here: Megatron's clipping is not modelled");
  }
}

/// Two spellings of one choice.
void check_precision(const RunRequest& request) {
  const bool half = is_given(request, "fp16"), brain = is_given(request, "bf16");
  const bool by_name = is_given(request, "precision");
  if (static_cast<int>(half) + static_cast<int>(brain) + static_cast<int>(by_name) < 2) return;
  throw Error(ErrorCode::kUsage,
              std::string(half ? "--fp16" : "--bf16") + " and " + (half && brain ? "--bf16" : "--precision") +
                  " contradict each other: give one",
              half && brain ? "--bf16" : "--precision", "precision-given-twice");
}

/// Megatron-LM's own loop takes the place of the Trainer's.
void check_loop(const RunRequest& request, const RunSpec& run) {
  if (run.parallel.framework() != Framework::kMegatron || request.run.loop != Loop::kTrainer) return;
  throw Error(ErrorCode::kUsage, "--loop trainer: Megatron has a loop of its own; accepted: no --loop, or --loop bare",
              "--loop", "megatron-loop");
}

/// ModelMixin.add_adapter of diffusers (loaders/peft.py, 0.42) leaves adapters in the type of the frozen network, where
/// peft's get_peft_model makes them float32; under fp16 the scripts call cast_training_params, which does. Each script
/// names the layers that it adapts.
// MIRRORS(diffusers, "loaders/peft.py", "0.42.1")
RunOptions with_adapters_of_diffusers(const ModelSpec& model, const RunRequest& request) {
  RunOptions options = request.run;
  if (!is_denoiser(model) || !options.lora_rank) return options;
  if (!is_given(request, "lora_dtype")) {
    const bool scales = options.mixed_precision == DType::kFloat16 || options.precision == Precision::kAmpFp16;
    options.lora_in_base_dtype = !scales;
  }
  if (!is_given(request, "lora_targets") && options.lora_targets.empty()) {
    options.lora_targets = model.architecture.as<ProgramSpec>().program->lora_targets;
  }
  return options;
}

/// ViT has a position for each patch: images of another size are another config, as in
/// from_pretrained(…, image_size=512, ignore_mismatched_sizes=True).
bool changes_positions(const ModelSpec& model, const RunRequest& request) {
  return request.run.image_size && has_image_key(model.model_type) &&
         *request.run.image_size != trained_image_size(model);
}

}  // namespace

ModelSpec with_images(ModelSpec model, const RunRequest& request) {
  if (image_text_of(model) == nullptr || (!request.images && !request.image_width)) return model;
  auto& spec = model.architecture.change<ImageTextSpec>();
  if (request.images) spec.images = request.images;
  spec.image_width = request.image_width;
  return model;
}

void take_versions(RunRequest& request, const SpecRegistry& registry) {
  if (request.versions.empty() && request.version_file.empty()) return;
  request.version_notes.clear();
  request.run.profile = registry.profiles().choose(request.versions, request.version_file, request.version_notes);
}

ResolvedRun resolve_request(const ModelSpec& model, const RunRequest& request) {
  check_precision(request);
  RunOptions options = with_adapters_of_diffusers(model, request);
  if (request.infer) options.inference = request.inference;
  ResolvedRun resolved = resolve(model, options);
  check_loop(request, resolved.run);
  check_effect(request, RunRecord{model, resolved.run, nullptr, &request.time});
  note_without_effect(request, model, resolved.run, resolved.assumptions);
  resolved.assumptions.insert(resolved.assumptions.end(), request.version_notes.begin(), request.version_notes.end());
  return resolved;
}

ModelSpec model_of(const RunRequest& request, const SpecRegistry& registry) {
  if (request.family.empty()) {
    if (request.model.empty()) {
      throw Error(ErrorCode::kUsage, "--model: expected a name (see memcalc models), a config.json or a directory",
                  "--model");
    }
    ModelSpec model = registry.model(request.model, request.changes);
    ArchitectureChanges changes = request.changes;
    if (changes_positions(model, request)) {
      changes.image = request.run.image_size;
      model = registry.model(request.model, changes);
    }
    model.reference = request.model;
    model.changes = changes;
    return with_images(std::move(model), request);
  }
  if (!request.model.empty()) {
    throw Error(ErrorCode::kUsage, "--arch and --model contradict each other: give one", "--arch");
  }
  ArchitectureChanges changes = request.changes;
  if (request.run.image_size && has_image_key(request.family)) changes.image = request.run.image_size;
  ModelSpec model = model_of_family(request.family, changes);
  model.family = request.family;
  model.changes = changes;
  return model;
}

/// Whether how its clock follows its power was measured.
bool follows_power(const DeviceSpec& device) {
  return device.rates != nullptr && device.rates->power.watts > 0 && device.power_watts > 0;
}

/// "h100-sxm, h200-sxm"
std::string cards_that_follow_power(const SpecRegistry& registry) {
  std::vector<std::string> names;
  for (const DeviceListing& listing : registry.devices()) {
    if (follows_power(registry.device(listing.name))) names.push_back(listing.name);
  }
  return join(names);
}

/// What an administrator sets by nvidia-smi -pl, down to `kLeast` of the limit that was measured: an H100 of 96 GB has
/// 500 of those 700 W of its own. Kernels that memory bounds draw 0.72 to 0.80 of them (power in
/// specs/measured/h200-sxm/rates.json); that they are no slower under a little less is an assumption.
void limit_power(double watts, const SpecRegistry& registry, DeviceSpec& device) {
  constexpr double kLeast = 0.7;
  const auto error = [](std::string text, const char* rule) {
    return Error(ErrorCode::kUsage, "--power-limit: " + std::move(text), "--power-limit", rule);
  };
  if (!follows_power(device)) {
    throw error(fmt::format("how the clock of {} follows its power was not measured; accepted: with --gpu {}",
                            device.name, cards_that_follow_power(registry)),
                "power-needs-rates");
  }
  const double least = std::ceil(kLeast * device.rates->power.watts);
  if (watts < least || watts > device.power_watts) {
    throw error(
        fmt::format("expected {:.0f} to {:.0f} W with {}, found {}", least, device.power_watts, device.name, watts),
        "power-within-range");
  }
  device.power_given = watts < device.power_watts;
  device.power_watts = watts;
}

DeviceSpec with_card_options(DeviceSpec device, const CardOptions& options, const SpecRegistry& registry) {
  if (options.memory_gib) {
    device.memory_bytes = bytes_of_gib(*options.memory_gib);
    device.memory_given = true;
  }
  if (options.power_watts) limit_power(*options.power_watts, registry, device);
  device.margin_bytes = bytes_of_gib(options.margin_gib);
  if (device.usable_bytes() <= 0) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--margin: expected less than the {:.1f} GiB of {}, found {}", in_gib(device.memory_bytes),
                            device.name, options.margin_gib),
                "--margin", "margin-below-memory");
  }
  return device;
}

/// Of --card a name will do, too; one that is not known was meant to be a description.
DeviceSpec card_of(const RunRequest& request, const SpecRegistry& registry) {
  const std::string& described = request.card.description;
  try {
    return registry.device(described.empty() ? request.gpu : described);
  } catch (const Error&) {
    if (described.empty() && is_card_description(request.gpu)) {
      throw Error(ErrorCode::kUsage,
                  "--gpu: expected one card, found '" + one_line(request.gpu) +
                      "'; memcalc compare and sweep take several, --card one that has no name",
                  "--gpu");
    }
    if (described.empty() || is_card_description(described)) throw;
  }
  return card_from_description(described, {});  // throws: says what it lacks
}

DeviceSpec device_of(const RunRequest& request, const SpecRegistry& registry) {
  if (!request.gpu.empty() && !request.card.description.empty()) {
    throw Error(ErrorCode::kUsage, "--gpu and --card contradict each other: give one", "--card", "card-given-twice");
  }
  const bool assumed = request.gpu.empty() && request.card.description.empty();
  DeviceSpec device =
      with_card_options(assumed ? registry.device(kAssumedDevice) : card_of(request, registry), request.card, registry);
  if (assumed) device.reference.clear();
  return device;
}

HostSize host_size_of(const CardOptions& options, const DeviceSpec& device, const SpecRegistry& registry) {
  if (options.host_memory_gib) return {bytes_of_gib(*options.host_memory_gib), std::string(kHostMemoryOption)};
  const auto usual = registry.usual_host(device.name);
  return usual ? HostSize{usual->memory_bytes, usual->source} : HostSize{};
}

Question question_of(const RunRequest& request, const SpecRegistry& registry) {
  Question question{model_of(request, registry), {}, device_of(request, registry), false, request.time};
  question.time.host_size = host_size_of(request.card, question.device, registry);
  question.device_assumed = question.device.reference.empty();
  RunRequest asked = request;
  take_versions(asked, registry);
  question.run = resolve_request(question.model, asked);
  if (question.device_assumed) {
    question.run.assumptions.push_back("the card behaves as " + question.device.name + ": none was named (--gpu)");
  } else {
    note_card(request.gpu, question.device, question.run.assumptions);
  }
  return question;
}

}  // namespace memcalc
