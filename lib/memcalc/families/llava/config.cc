// config.json of LLaVA, as transformers 5.17 reads it: models/llava/configuration_llava.py.
// MIRRORS(transformers, "models/llava/configuration_llava.py", "5.17.0")
#include <string>

#include "memcalc/families/llava/spec.h"
#include "memcalc/spec/config_part.h"
#include "memcalc/spec/text_config.h"

namespace memcalc::family {
namespace {

std::int64_t places(const Architecture& parts, const ImageSize& /*image*/) { return parts.as<LlavaParts>().places(); }

Architecture llava(HfReader& config) {
  constexpr std::string_view kTexts[] = {"llama", "mistral", "qwen2", "qwen3", "gemma"};
  ImageTextSpec spec = read_text_config(config, kTexts, "llama", {.tie = TieKey::kEither});
  LlavaParts parts;
  // LlavaConfig's own where there is none: CLIP's ViT-L/14 of 336 pixels.
  constexpr std::string_view kTower =
      R"({"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
          "patch_size": 14, "image_size": 336, "projection_dim": 768, "vocab_size": 32000})";
  read_part(
      config, "vision_config", "llava vision_config",
      [&](HfReader& vision) { parts.tower = image_tower(vision, "clip_vision_model"); }, kTower);
  const std::int64_t layers = parts.tower.tower.num_hidden_layers;
  const NumberOrList chosen = number_or_list(config.json(), "vision_feature_layer", -2, {-layers - 1, layers});
  parts.single_layer = !chosen.is_list;
  for (const std::int64_t layer : chosen.numbers) {
    parts.feature_layers.push_back(layer < 0 ? layers + 1 + layer : layer);
  }
  const std::string strategy = config.json().nullable_string("vision_feature_select_strategy").value_or("default");
  if (strategy != "default" && strategy != "full") {
    throw config.json().error_found("vision_feature_select_strategy", "default, full");
  }
  parts.drops_class_token = strategy == "default";
  parts.projector_act = config.activation("projector_hidden_act", "gelu");
  parts.projector_bias = config.flag("multimodal_projector_bias", true);
  spec.image_size = parts.tower.image_size;
  spec.places_of_image = places;
  spec.parts = parts;
  return spec;
}

}  // namespace

const Family kLlava = {
    .model_type = "llava",
    .kind = FamilyKind::kDecoder,
    .read = llava,
    .build = build_llava,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
};

}  // namespace memcalc::family
