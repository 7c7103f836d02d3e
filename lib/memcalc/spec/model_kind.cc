#include "memcalc/spec/model_kind.h"

#include <algorithm>
#include <functional>

#include "memcalc/spec/family.h"
#include "memcalc/spec/image_text_spec.h"
#include "memcalc/spec/lit_config.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

bool is_kind(const ModelSpec& model, FamilyKind kind) {
  const Family* const family = family_of(model);
  return family != nullptr && family->kind == kind;
}

}  // namespace

std::optional<std::int64_t> position_limit(const ModelSpec& model) {
  return model.architecture.dimensions().position_limit;
}

std::int64_t trained_context(const ModelSpec& model) {
  return model.architecture.dimensions().trained_context.value_or(1);  // no positions
}

bool has_experts(const ModelSpec& model) { return model.architecture.dimensions().experts.value_or(0) > 0; }

bool is_vision(const ModelSpec& model) { return is_kind(model, FamilyKind::kImages); }

std::int64_t trained_image_size(const ModelSpec& model) {
  return model.architecture.dimensions().image_size.value_or(224);
}

bool is_contrastive(const ModelSpec& model) { return is_kind(model, FamilyKind::kContrastive); }

bool is_custom(const ModelSpec& model) { return model.architecture.is<CustomSpec>(); }

bool is_program(const ModelSpec& model) { return model.architecture.is<ProgramSpec>(); }

bool is_eager_in(const ModelSpec& model, const Behaviors& behaviors) {
  const Family* const family = family_of(model);
  return family != nullptr && family->is_eager != nullptr && family->is_eager(behaviors);
}

bool is_of_torchvision(const ModelSpec& model) {
  const Family* const family = family_of(model);
  return family != nullptr && family->is_torchvision;
}

bool is_of_transformers(const ModelSpec& model) {
  const Family* const family = family_of(model);
  return family != nullptr && !family->is_torchvision && model.model_type != kLitGptType;
}

bool takes_labels(const ModelSpec& model) {
  if (!is_program(model)) return !is_custom(model);
  const std::vector<ProgramTensor>& inputs = model.architecture.as<ProgramSpec>().program->inputs;
  return std::any_of(inputs.begin(), inputs.end(), [](const ProgramTensor& input) { return input.name == "labels"; });
}

bool is_encoder(const ModelSpec& model) { return is_kind(model, FamilyKind::kEncoder); }

bool has_eager_attention_only(const ModelSpec& model) { return is_eager_in(model, Behaviors{}); }

bool is_speech(const ModelSpec& model) { return is_kind(model, FamilyKind::kSpeech); }

bool is_encoder_decoder(const ModelSpec& model) {
  return is_kind(model, FamilyKind::kEncoderDecoder) || is_speech(model);
}

bool is_decoder(const ModelSpec& model) { return is_kind(model, FamilyKind::kDecoder); }

Task usual_task(const ModelSpec& model) {
  if (is_program(model)) {
    const std::string& task = model.architecture.as<ProgramSpec>().program->task;
    const auto found = std::find(kTaskNames.begin(), kTaskNames.end(), task);
    return found == kTaskNames.end() ? Task::kCustom : static_cast<Task>(found - kTaskNames.begin());
  }
  const Family* const family = family_of(model);
  if (family == nullptr) return Task::kCustom;
  switch (family->kind) {
    case FamilyKind::kEncoder: return Task::kSequenceClassification;
    case FamilyKind::kEncoderDecoder: return Task::kSeq2Seq;
    case FamilyKind::kSpeech: return Task::kSpeech;
    case FamilyKind::kContrastive: return Task::kContrastive;
    case FamilyKind::kImages:
    case FamilyKind::kDecoder: break;
  }
  return Task::kCausalLm;
}

void set_layers(ModelSpec& model, std::int64_t layers) { model.architecture.set_layers(layers); }

bool layers_are_alike(const ModelSpec& model) {
  if (is_program(model) || is_custom(model) || has_experts(model) || image_text_of(model) != nullptr) return false;
  const std::vector<bool>* const sliding = model.architecture.dimensions().sliding_layers;
  return sliding == nullptr ||
         std::adjacent_find(sliding->begin(), sliding->end(), std::not_equal_to<>()) == sliding->end();
}

void set_labels(ModelSpec& model, std::int64_t labels) { model.architecture.set_labels(labels); }

}  // namespace memcalc
