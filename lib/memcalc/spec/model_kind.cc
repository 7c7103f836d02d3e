#include "memcalc/spec/model_kind.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <variant>

#include "memcalc/spec/lit_config.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {

std::optional<std::int64_t> position_limit(const ModelSpec& model) {
  if (const auto* bert = std::get_if<BertSpec>(&model.architecture)) {
    // RoBERTa's positions start after the padding id (transformers create_position_ids_from_input_ids).
    return bert->max_position_embeddings - bert->first_position;
  }
  if (const auto* bart = std::get_if<BartSpec>(&model.architecture)) return bart->max_position_embeddings;
  if (const auto* whisper = std::get_if<WhisperSpec>(&model.architecture)) return whisper->max_position_embeddings;
  if (const auto* distilbert = std::get_if<DistilBertSpec>(&model.architecture)) {
    return distilbert->max_position_embeddings;
  }
  if (const auto* gpt2 = std::get_if<Gpt2Spec>(&model.architecture)) return gpt2->n_positions;
  if (const auto* opt = std::get_if<OptSpec>(&model.architecture)) return opt->max_position_embeddings;
  if (const auto* clip = std::get_if<ClipSpec>(&model.architecture)) return clip->max_position_embeddings;
  return std::nullopt;
}

std::int64_t trained_context(const ModelSpec& model) {
  if (const auto limit = position_limit(model)) return *limit;
  if (std::holds_alternative<T5Spec>(model.architecture)) return 512;  // T5 paper: 512 tokens; positions are relative
  return std::visit(
      [](const auto& architecture) -> std::int64_t {
        if constexpr (requires { architecture.max_position_embeddings; }) return architecture.max_position_embeddings;
        return 1;  // no positions, or some that position_limit knows
      },
      model.architecture);
}

bool has_experts(const ModelSpec& model) {
  return std::holds_alternative<MixtralSpec>(model.architecture) ||
         std::holds_alternative<Qwen3MoeSpec>(model.architecture) ||
         std::holds_alternative<GptOssSpec>(model.architecture) ||
         std::holds_alternative<DeepseekV2Spec>(model.architecture) ||
         std::holds_alternative<DeepseekV3Spec>(model.architecture);
}

bool is_vision(const ModelSpec& model) {
  return std::holds_alternative<VitSpec>(model.architecture) ||
         std::holds_alternative<TorchvisionSpec>(model.architecture);
}

std::int64_t trained_image_size(const ModelSpec& model) {
  const auto* vit = std::get_if<VitSpec>(&model.architecture);
  if (vit != nullptr) return vit->image_size;
  if (const auto* clip = std::get_if<ClipSpec>(&model.architecture)) return clip->image_size;
  const auto* torchvision = std::get_if<TorchvisionSpec>(&model.architecture);
  return torchvision != nullptr ? torchvision->image_size : 224;
}

bool is_contrastive(const ModelSpec& model) { return std::holds_alternative<ClipSpec>(model.architecture); }

bool is_custom(const ModelSpec& model) { return std::holds_alternative<CustomSpec>(model.architecture); }

bool is_program(const ModelSpec& model) { return std::holds_alternative<ProgramSpec>(model.architecture); }

bool is_eager_in(const ModelSpec& model, const Behaviors& behaviors) {
  if (has_eager_attention_only(model)) return true;
  if (const auto* bert = std::get_if<BertSpec>(&model.architecture)) return bert->is_electra && behaviors.electra_eager;
  if (std::holds_alternative<Gemma2Spec>(model.architecture)) return behaviors.gemma2_eager;
  return std::holds_alternative<T5Spec>(model.architecture) && behaviors.t5_attention == T5Attention::kEager;
}

bool is_of_transformers(const ModelSpec& model) {
  return !is_program(model) && !is_custom(model) && model.model_type != kLitGptType &&
         !std::holds_alternative<TorchvisionSpec>(model.architecture);
}

bool takes_labels(const ModelSpec& model) {
  if (!is_program(model)) return !is_custom(model);
  const std::vector<ProgramTensor>& inputs = std::get<ProgramSpec>(model.architecture).program->inputs;
  return std::any_of(inputs.begin(), inputs.end(), [](const ProgramTensor& input) { return input.name == "labels"; });
}

bool is_encoder(const ModelSpec& model) {
  return std::holds_alternative<BertSpec>(model.architecture) ||
         std::holds_alternative<DistilBertSpec>(model.architecture);
}

bool has_eager_attention_only(const ModelSpec& model) { return std::holds_alternative<GptOssSpec>(model.architecture); }

bool is_speech(const ModelSpec& model) { return std::holds_alternative<WhisperSpec>(model.architecture); }

bool is_encoder_decoder(const ModelSpec& model) {
  return std::holds_alternative<T5Spec>(model.architecture) || std::holds_alternative<BartSpec>(model.architecture) ||
         is_speech(model);
}

bool is_decoder(const ModelSpec& model) {
  return !is_encoder(model) && !is_encoder_decoder(model) && !is_vision(model) && !is_custom(model) &&
         !is_contrastive(model) && !is_program(model);
}

Task usual_task(const ModelSpec& model) {
  if (is_custom(model)) return Task::kCustom;
  if (is_program(model)) {
    const std::string& task = std::get<ProgramSpec>(model.architecture).program->task;
    const auto found = std::find(kTaskNames.begin(), kTaskNames.end(), task);
    return found == kTaskNames.end() ? Task::kCustom : static_cast<Task>(found - kTaskNames.begin());
  }
  if (is_contrastive(model)) return Task::kContrastive;
  if (is_encoder(model)) return Task::kSequenceClassification;
  if (is_speech(model)) return Task::kSpeech;
  return is_encoder_decoder(model) ? Task::kSeq2Seq : Task::kCausalLm;
}

void set_layers(ModelSpec& model, std::int64_t layers) {
  std::visit(
      [layers](auto& architecture) {
        if constexpr (requires { architecture.n_layer; }) {
          architecture.n_layer = layers;
        } else if constexpr (requires { architecture.n_layers; }) {
          architecture.n_layers = layers;
        } else if constexpr (requires { architecture.encoder_layers; }) {
          architecture.encoder_layers = architecture.decoder_layers = layers;
        } else if constexpr (requires { architecture.text.num_hidden_layers; }) {
          architecture.text.num_hidden_layers = architecture.vision.num_hidden_layers = layers;
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
      model.architecture);
}

bool layers_are_alike(const ModelSpec& model) {
  if (is_program(model) || is_custom(model) || has_experts(model)) return false;
  return std::visit(
      [](const auto& architecture) {
        if constexpr (requires { architecture.sliding_layers; }) {
          const std::vector<bool>& sliding = architecture.sliding_layers;
          return std::adjacent_find(sliding.begin(), sliding.end(), std::not_equal_to<>()) == sliding.end();
        }
        return true;
      },
      model.architecture);
}

void set_labels(ModelSpec& model, std::int64_t labels) {
  std::visit(
      [labels](auto& architecture) {
        if constexpr (requires { architecture.num_labels; }) architecture.num_labels = labels;
      },
      model.architecture);
}

}  // namespace memcalc
