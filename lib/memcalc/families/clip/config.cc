// config.json of CLIP, as transformers 5.17 reads it: models/clip.
// MIRRORS(transformers, "models/siglip/modeling_siglip.py", "5.17.0")
#include <string>

#include "memcalc/families/clip/spec.h"
#include "memcalc/spec/config_part.h"

namespace memcalc::family {
namespace {

struct TowerDefaults {
  std::int64_t hidden_size, intermediate_size, num_attention_heads;
};

ClipTower tower(HfReader& config, const TowerDefaults& defaults, std::string_view activation = "quick_gelu") {
  ClipTower tower;
  tower.hidden_size = config.size({"hidden_size"}, defaults.hidden_size);
  tower.intermediate_size = config.size({"intermediate_size"}, defaults.intermediate_size);
  tower.num_hidden_layers = config.size({"num_hidden_layers"}, 12, kLayerRange);
  tower.num_attention_heads = config.size({"num_attention_heads"}, defaults.num_attention_heads);
  tower.hidden_act = config.activation("hidden_act", activation);
  tower.attention_dropout = config.probability("attention_dropout", 0);
  config.divides("num_attention_heads", tower.num_attention_heads, "hidden_size", tower.hidden_size);
  config.check_parameter_count([&] {
    return checked_multiply(tower.num_hidden_layers, layer_parameters(tower.hidden_size, tower.intermediate_size, 2));
  });
  return tower;
}

Architecture clip(HfReader& config) {
  ClipSpec spec;
  spec.projection_dim = config.size({"projection_dim"}, 512);
  read_part(config, "text_config", "clip text_config", [&](HfReader& text) {
    spec.text = tower(text, {.hidden_size = 512, .intermediate_size = 2048, .num_attention_heads = 8});
    spec.vocab_size = text.size({"vocab_size"}, 49408);
    spec.max_position_embeddings = text.size({"max_position_embeddings"}, 77);
    spec.pools_at_highest_id = text.json().nullable_int("eos_token_id").value_or(49407) == 2;
  });
  read_part(config, "vision_config", "clip vision_config", [&](HfReader& vision) {
    spec.vision = tower(vision, {.hidden_size = 768, .intermediate_size = 3072, .num_attention_heads = 12});
    spec.image_size = vision.size({"image_size"}, 224);
    spec.patch_size = vision.size({"patch_size"}, 32);
    spec.num_channels = vision.size({"num_channels"}, 3);
  });
  return spec;
}

constexpr Task kClipMeasured[] = {Task::kContrastive};

}  // namespace

ImageTowerSpec image_tower(HfReader& config, std::string_view fallback) {
  const std::string type = config.json().nullable_string("model_type").value_or(std::string(fallback));
  if (type != "clip_vision_model" && type != "siglip_vision_model") {
    throw config.json().error("model_type", type + " is not modelled; accepted: clip_vision_model, siglip_vision_model",
                              ErrorCode::kUnsupported);
  }
  ImageTowerSpec spec;
  spec.siglip = type == "siglip_vision_model";
  spec.tower = tower(config, {.hidden_size = 768, .intermediate_size = 3072, .num_attention_heads = 12},
                     spec.siglip ? "gelu_pytorch_tanh" : "quick_gelu");
  spec.tower.siglip = spec.siglip;
  spec.image_size = config.size({"image_size"}, 224);
  spec.patch_size = config.size({"patch_size"}, spec.siglip ? 16 : 32);
  spec.num_channels = config.size({"num_channels"}, 3);
  // modeling_siglip.py: absent means a head. It pools what no model of images and text looks at.
  if (spec.siglip && config.flag("vision_use_head", true)) {
    throw config.json().error("vision_use_head", "true is not modelled; accepted: false", ErrorCode::kUnsupported);
  }
  if (spec.image_size < spec.patch_size) {
    throw config.json().error("patch_size", "is larger than image_size; accepted: a part of it");
  }
  return spec;
}

const Family kClip = {
    .model_type = "clip",
    .kind = FamilyKind::kContrastive,
    .read = clip,
    .build = build_clip,
    .measured = kClipMeasured,
};

}  // namespace memcalc::family
