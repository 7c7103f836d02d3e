#include "memcalc/spec/model_kind.h"

#include <algorithm>
#include <array>
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

std::optional<std::int64_t> trained_context(const ModelSpec& model) {
  return model.architecture.dimensions().trained_context;
}

std::int64_t context_of_vllm(const ModelSpec& model) {
  // vLLM 0.31.0, config/model.py, _get_and_verify_max_len: "Assuming the model's maximum length is …"
  constexpr std::int64_t kAssumed = 2048;
  return trained_context(model).value_or(kAssumed);
}

bool has_experts(const ModelSpec& model) { return model.architecture.dimensions().experts.value_or(0) > 0; }

bool is_vision(const ModelSpec& model) { return is_kind(model, FamilyKind::kImages); }

std::int64_t trained_image_size(const ModelSpec& model) {
  return model.architecture.dimensions().image_size.value_or(224);
}

bool is_contrastive(const ModelSpec& model) { return is_kind(model, FamilyKind::kContrastive); }

bool takes_attention(const ModelSpec& model) {
  if (const auto* custom = model.architecture.get_if<CustomSpec>())
    return custom::has_layer<custom::AttentionLayer>(custom->layers);
  return !is_of_torchvision(model);
}

bool chooses_attention(const ModelSpec& model) {
  const Family* const family = family_of(model);
  return takes_attention(model) && (family == nullptr || !family->has_no_attention);
}

bool is_custom(const ModelSpec& model) { return model.architecture.is<CustomSpec>(); }

bool is_program(const ModelSpec& model) { return model.architecture.is<ProgramSpec>(); }

bool is_denoiser(const ModelSpec& model) {
  return is_program(model) && model.architecture.as<ProgramSpec>().program->task == kDenoisingTask;
}

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

bool runs_transformers(const ModelSpec& model) {
  return is_of_transformers(model) || (is_program(model) && model.source.starts_with("transformers."));
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

Task megatron_task(const ModelSpec& model) {
  if (is_encoder(model)) return Task::kMaskedLm;
  return is_encoder_decoder(model) ? Task::kSeq2Seq : Task::kCausalLm;
}

std::span<const Task> tasks_of(const ModelSpec& model) {
  static constexpr Task kLayers[] = {Task::kCustom};
  static constexpr Task kImages[] = {Task::kImageClassification};
  static constexpr Task kPairs[] = {Task::kContrastive};
  static constexpr Task kSounds[] = {Task::kSpeech};
  static constexpr Task kTranslations[] = {Task::kSeq2Seq};
  static constexpr Task kTexts[] = {Task::kCausalLm};
  static constexpr Task kDecoders[] = {Task::kCausalLm, Task::kSequenceClassification};
  static constexpr Task kAnsweringDecoders[] = {Task::kCausalLm, Task::kSequenceClassification,
                                                Task::kQuestionAnswering};
  static constexpr Task kEncoders[] = {Task::kSequenceClassification, Task::kMaskedLm, Task::kTokenClassification,
                                       Task::kFeatures};
  static constexpr Task kAnsweringEncoders[] = {Task::kSequenceClassification, Task::kMaskedLm,
                                                Task::kTokenClassification, Task::kFeatures, Task::kQuestionAnswering};
  static constexpr std::array<Task, kTaskNames.size()> kAll = [] {
    std::array<Task, kTaskNames.size()> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Task>(i);
    return all;
  }();
  if (is_program(model)) {
    const std::string& task = model.architecture.as<ProgramSpec>().program->task;
    const auto found = std::find(kTaskNames.begin(), kTaskNames.end(), task);
    const Task own = found == kTaskNames.end() ? Task::kCustom : static_cast<Task>(found - kTaskNames.begin());
    return std::span(kAll).subspan(static_cast<std::size_t>(own), 1);
  }
  if (is_custom(model)) return kLayers;
  const Family* const family = family_of(model);
  if (family != nullptr && !family->tasks.empty()) return family->tasks;
  if (is_vision(model)) return kImages;
  if (is_contrastive(model)) return kPairs;
  if (is_speech(model)) return kSounds;
  if (is_encoder_decoder(model)) return kTranslations;
  const bool answers = family != nullptr && family->answers_questions;
  if (is_encoder(model)) return answers ? std::span<const Task>(kAnsweringEncoders) : kEncoders;
  if (is_image_text(model)) return kTexts;
  return answers ? std::span<const Task>(kAnsweringDecoders) : kDecoders;
}

std::vector<std::string> names_of(std::span<const Task> tasks) {
  std::vector<std::string> names;
  for (const Task each : tasks) names.emplace_back(name_of(each));
  return names;
}

Task usual_task(const ModelSpec& model) { return tasks_of(model).front(); }

void set_layers(ModelSpec& model, std::int64_t layers) { model.architecture.set_layers(layers); }

bool layers_are_alike(const ModelSpec& model) {
  if (is_program(model) || is_custom(model) || has_experts(model) || image_text_of(model) != nullptr) return false;
  const Dimensions d = model.architecture.dimensions();
  // A family tells its dense layers where its layers are of several kinds (Nemotron-H, LFM2).
  if (d.dense_layers != nullptr &&
      std::find(d.dense_layers->begin(), d.dense_layers->end(), true) != d.dense_layers->end())
    return false;
  const std::vector<bool>* const sliding = d.sliding_layers;
  return sliding == nullptr ||
         std::adjacent_find(sliding->begin(), sliding->end(), std::not_equal_to<>()) == sliding->end();
}

void set_labels(ModelSpec& model, std::int64_t labels) { model.architecture.set_labels(labels); }

}  // namespace memcalc
