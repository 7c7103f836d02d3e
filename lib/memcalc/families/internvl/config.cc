// config.json of InternVL, as transformers 5.17 reads it: models/internvl/configuration_internvl.py. The hub's older
// ones (model_type internvl_chat) have code of their own.
// MIRRORS(transformers, "models/internvl/configuration_internvl.py", "5.17.0")
#include <cmath>
#include <string>

#include "memcalc/families/internvl/spec.h"
#include "memcalc/spec/config_part.h"
#include "memcalc/spec/text_config.h"

namespace memcalc::family {
namespace {

std::int64_t internvl_places(const Architecture& parts, const ImageSize& /*image*/) {
  return parts.as<InternVlParts>().places();
}

/// A number, or two that are alike.
std::int64_t side_of_square(const HfReader& config, std::string_view key, std::int64_t fallback) {
  const NumberOrList read = number_or_list(config.json(), key, fallback, kSizeRange);
  for (const std::int64_t each : read.numbers) {
    if (each != read.numbers.front() || read.numbers.size() > 2) {
      throw config.json().error(std::string(key), "is no square; accepted: one number, or two that are alike",
                                ErrorCode::kUnsupported);
    }
  }
  if (read.numbers.empty()) throw config.json().error_found(std::string(key), "one number, or two that are alike");
  return read.numbers.front();
}

InternVlParts internvl_tower(HfReader& config) {
  InternVlParts parts;
  parts.hidden_size = config.size({"hidden_size"}, 1024);
  parts.num_hidden_layers = config.size({"num_hidden_layers"}, 24, kLayerRange);
  parts.num_attention_heads = config.size({"num_attention_heads"}, 16);
  parts.intermediate_size = config.size({"intermediate_size"}, 4096);
  parts.hidden_act = config.activation("hidden_act", "gelu");
  parts.hidden_dropout = config.probability("hidden_dropout_prob", 0);
  parts.attention_dropout = config.probability("attention_dropout", 0);
  parts.projection_dropout = config.probability("projection_dropout", 0);
  parts.attention_bias = config.flag("attention_bias", false);
  parts.qk_norm = config.flag("use_qk_norm", false);
  const std::string norm = config.json().nullable_string("norm_type").value_or("layer_norm");
  if (norm != "layer_norm" && norm != "rms_norm") throw config.json().error_found("norm_type", "layer_norm, rms_norm");
  parts.rms_norm = norm == "rms_norm";
  parts.mask_token = config.flag("use_mask_token", false);
  parts.has_positions = config.flag("use_absolute_position_embeddings", true);
  parts.last_norm = !config.flag("use_mean_pooling", true);
  parts.image_size = side_of_square(config, "image_size", 448);
  parts.patch_size = side_of_square(config, "patch_size", 14);
  parts.num_channels = config.size({"num_channels"}, 3);
  config.divides("num_attention_heads", parts.num_attention_heads, "hidden_size", parts.hidden_size);
  config.check_parameter_count([&] {
    return checked_multiply(parts.num_hidden_layers,
                            checked_multiply(8, linear_parameters(parts.hidden_size, parts.intermediate_size)));
  });
  return parts;
}

Architecture internvl(HfReader& config) {
  constexpr std::string_view kTexts[] = {"llama", "qwen2", "qwen3", "qwen3_moe"};
  ImageTextSpec spec = read_text_config(config, kTexts, "qwen2", {.tied = true});
  InternVlParts parts;
  read_part(config, "vision_config", "internvl_vision", [&](HfReader& vision) { parts = internvl_tower(vision); });
  const double ratio = config.json().nullable_double("downsample_ratio", {0, 1}).value_or(0.5);
  parts.merge = ratio > 0 ? std::lround(1 / ratio) : 0;
  if (parts.merge < 1 || ratio * static_cast<double>(parts.merge) != 1 || parts.side() % parts.merge != 0) {
    throw config.json().error("downsample_ratio", "does not join whole patches; accepted: 1, 0.5, 0.25, …");
  }
  parts.projector_act = config.activation("projector_hidden_act", "gelu");
  const NumberOrList layer =
      number_or_list(config.json(), "vision_feature_layer", -1, {-kLayerRange.max, kLayerRange.max});
  if (layer.is_list || layer.numbers.front() != -1) {
    throw config.json().error("vision_feature_layer", "states of other layers are not modelled; accepted: -1",
                              ErrorCode::kUnsupported);
  }
  if (config.json().nullable_string("vision_feature_select_strategy").value_or("default") != "default") {
    throw config.json().error_found("vision_feature_select_strategy", "default");
  }
  spec.image_size = parts.image_size;
  spec.places_of_image = internvl_places;
  spec.parts = parts;
  return spec;
}

}  // namespace

const Family kInternVl = {
    .model_type = "internvl",
    .kind = FamilyKind::kDecoder,
    .read = internvl,
    .build = build_internvl,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
    .has_router_loss = true,
};

}  // namespace memcalc::family
