// config.json of Qwen2-VL, Qwen2.5-VL and Qwen3-VL, as transformers 5.17 reads it: models/qwen2_vl, models/qwen2_5_vl,
// models/qwen3_vl, models/qwen3_vl_moe. Of the first two the hub's have the text model's keys beside vision_config.
#include <algorithm>
#include <string>
#include <string_view>

#include "memcalc/families/qwen/spec.h"
#include "memcalc/families/qwen2_vl/spec.h"
#include "memcalc/families/qwen3_moe/spec.h"
#include "memcalc/spec/config_part.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/qwen_moe_defaults.h"
#include "memcalc/spec/text_config.h"

namespace memcalc::family {
namespace {

std::int64_t places(const Architecture& parts, const ImageSize& image) {
  const auto& tower = parts.as<QwenVisionParts>();
  return (image.height / tower.patch_size) * (image.width / tower.patch_size) / tower.merged();
}

Qwen2Spec text_model(HfReader& config) {
  Qwen2Spec spec;
  read_decoder(config,
               {.vocab_size = 152064,
                .hidden_size = 8192,
                .intermediate_size = 29568,
                .num_hidden_layers = 80,
                .num_attention_heads = 64,
                .num_key_value_heads = 8,
                .max_position_embeddings = 32768},
               spec);
  config.only_flag("use_sliding_window", false);
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  return spec;
}

/// Rows and columns turn a half of a head each, both in pairs of numbers.
void divide_heads(const HfReader& config, std::string_view key, const QwenVisionParts& parts) {
  const bool whole_heads = parts.hidden_size % parts.num_heads == 0;
  if (whole_heads && parts.hidden_size / parts.num_heads % 4 == 0) return;
  throw config.json().error(key, "found " + std::to_string(parts.hidden_size) +
                                     "; accepted: a multiple of 4 x num_heads (4 x " + std::to_string(parts.num_heads) +
                                     ")");
}

QwenVisionParts tower(HfReader& config, QwenVision kind) {
  const bool is_2_5 = kind == QwenVision::k25;
  QwenVisionParts parts;
  parts.kind = kind;
  parts.depth = config.size({"depth"}, 32, kLayerRange);
  parts.hidden_size = is_2_5 ? config.size({"hidden_size"}, 3584) : config.size({"embed_dim"}, 1280);
  parts.num_heads = config.size({"num_heads"}, 16);
  parts.in_channels = config.size({"in_channels", "in_chans"}, 3);
  parts.patch_size = config.size({"patch_size"}, 14);
  parts.spatial_merge_size = config.size({"spatial_merge_size"}, 2);
  parts.temporal_patch_size = config.size({"temporal_patch_size"}, 2);
  parts.hidden_act = config.activation("hidden_act", is_2_5 ? "silu" : "quick_gelu");
  divide_heads(config, is_2_5 ? "hidden_size" : "embed_dim", parts);
  if (!is_2_5) {
    parts.out_hidden_size = config.size({"hidden_size"}, 3584);
    parts.intermediate_size = checked_multiply(parts.hidden_size, config.size({"mlp_ratio"}, 4));
  } else {
    parts.out_hidden_size = config.size({"out_hidden_size"}, 3584);
    parts.intermediate_size = config.size({"intermediate_size"}, 3420);
    parts.window_size = config.size({"window_size"}, 112);
    if (parts.window_size / parts.spatial_merge_size / parts.patch_size < 1) {
      throw config.json().error("window_size",
                                "is smaller than a token's patches; accepted: patch_size times "
                                "spatial_merge_size, or more");
    }
    parts.full_attention.assign(static_cast<std::size_t>(parts.depth), false);
    const bool given = config.json().has("fullatt_block_indexes") && !config.json().is_null("fullatt_block_indexes");
    const std::vector<std::int64_t> full =
        given ? config.json().required_ints("fullatt_block_indexes") : std::vector<std::int64_t>{7, 15, 23, 31};
    for (const std::int64_t layer : full) {
      if (layer >= 0 && layer < parts.depth) parts.full_attention[static_cast<std::size_t>(layer)] = true;
    }
  }
  config.check_parameter_count([&] {
    return checked_multiply(parts.depth,
                            checked_multiply(8, linear_parameters(parts.hidden_size, parts.intermediate_size)));
  });
  return parts;
}

QwenVisionParts qwen3_tower(HfReader& config) {
  QwenVisionParts parts;
  parts.kind = QwenVision::k3;
  parts.depth = config.size({"depth"}, 27, kLayerRange);
  parts.hidden_size = config.size({"hidden_size"}, 1152);
  parts.num_heads = config.size({"num_heads"}, 16);
  parts.intermediate_size = config.size({"intermediate_size"}, 4304);
  parts.hidden_act = config.activation("hidden_act", "gelu_pytorch_tanh");
  parts.in_channels = config.size({"in_channels"}, 3);
  parts.patch_size = config.size({"patch_size"}, 16);
  parts.spatial_merge_size = config.size({"spatial_merge_size"}, 2);
  parts.temporal_patch_size = config.size({"temporal_patch_size"}, 2);
  parts.out_hidden_size = config.size({"out_hidden_size"}, 3584);
  parts.num_position_embeddings = config.size({"num_position_embeddings"}, 2304);
  const bool given =
      config.json().has("deepstack_visual_indexes") && !config.json().is_null("deepstack_visual_indexes");
  parts.deepstack_layers = given ? config.json().required_ints("deepstack_visual_indexes", {0, parts.depth - 1})
                                 : std::vector<std::int64_t>{8, 16, 24};
  divide_heads(config, "hidden_size", parts);
  config.check_parameter_count([&] {
    return checked_multiply(parts.depth,
                            checked_multiply(8, linear_parameters(parts.hidden_size, parts.intermediate_size)));
  });
  return parts;
}

void add_tower(const HfReader& config, const QwenVisionParts& parts, ImageTextSpec& spec) {
  if (parts.out_hidden_size != spec.hidden_size) {
    throw config.json().error("vision_config", "gives vectors of " + std::to_string(parts.out_hidden_size) +
                                                   " numbers; accepted: the text model's hidden_size, " +
                                                   std::to_string(spec.hidden_size));
  }
  spec.side_multiple = checked_multiply(parts.patch_size, parts.spatial_merge_size);
  spec.image_size = 16 * spec.side_multiple;
  spec.places_of_image = places;
  spec.parts = parts;
}

Architecture qwen3_vl(HfReader& config) {
  constexpr std::string_view kTexts[] = {"qwen3"};
  ImageTextSpec spec = read_text_config(config, kTexts, "qwen3", {.own_type = "qwen3_vl_text"});
  QwenVisionParts parts;
  read_part(config, "vision_config", "qwen3_vl_vision", [&](HfReader& vision) { parts = qwen3_tower(vision); });
  add_tower(config, parts, spec);
  return spec;
}

/// Qwen3VLMoeTextConfig: Qwen3-MoE's, whose router always normalises, with defaults of its own.
Qwen3MoeSpec text_with_experts(HfReader& config) {
  Qwen3MoeSpec spec;
  read_decoder(config, qwen_moe_defaults(128000), spec);
  spec.attention_bias = config.flag("attention_bias", false);
  const std::int64_t width = config.size({"moe_intermediate_size"}, 1408);
  spec.experts = read_experts(config, {"num_experts", "num_local_experts"}, 60, 4, width, spec);
  spec.norm_topk_prob = true;
  refuse_auxiliary_loss(config);
  spec.dense_layers = read_dense_layers(config, spec.num_hidden_layers);
  return spec;
}

Architecture qwen3_vl_moe(HfReader& config) {
  Qwen3MoeSpec text;
  read_part(config, "text_config", "qwen3_vl_moe_text", [&](HfReader& reader) { text = text_with_experts(reader); });
  text.tie_word_embeddings = config.flag("tie_word_embeddings", false);
  ImageTextSpec spec = around_text<Qwen3MoeSpec>(text);
  QwenVisionParts parts;
  read_part(config, "vision_config", "qwen3_vl_moe_vision", [&](HfReader& vision) { parts = qwen3_tower(vision); });
  add_tower(config, parts, spec);
  return spec;
}

Architecture with_tower(HfReader& config, bool is_2_5) {
  const bool nested = config.json().nullable_object("text_config").has_value();
  Qwen2Spec text;
  bool tied = config.flag("tie_word_embeddings", false);
  if (nested) {
    read_part(config, "text_config", is_2_5 ? "qwen2_5_vl_text" : "qwen2_vl_text", [&](HfReader& reader) {
      text = text_model(reader);
      tied = tied || reader.json().optional_bool("tie_word_embeddings").value_or(false);
    });
  } else {
    text = text_model(config);
  }
  text.tie_word_embeddings = tied;
  ImageTextSpec spec = around_text<Qwen2Spec>(text);
  QwenVisionParts parts;
  read_part(config, "vision_config", is_2_5 ? "qwen2_5_vl_vision" : "qwen2_vl_vision",
            [&](HfReader& vision) { parts = tower(vision, is_2_5 ? QwenVision::k25 : QwenVision::k2); });
  add_tower(config, parts, spec);
  return spec;
}

Architecture qwen2_vl(HfReader& config) { return with_tower(config, false); }
Architecture qwen2_5_vl(HfReader& config) { return with_tower(config, true); }

}  // namespace

const Family kQwen2Vl = {
    .model_type = "qwen2_vl",
    .kind = FamilyKind::kDecoder,
    .read = qwen2_vl,
    .build = build_qwen2_vl,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
};

const Family kQwen25Vl = {
    .model_type = "qwen2_5_vl",
    .kind = FamilyKind::kDecoder,
    .read = qwen2_5_vl,
    .build = build_qwen2_vl,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
};

const Family kQwen3Vl = {
    .model_type = "qwen3_vl",
    .kind = FamilyKind::kDecoder,
    .read = qwen3_vl,
    .build = build_qwen2_vl,
    .measured = kCausalLmAlone,
    .special_tokens = {.begins = false, .ends = false},
    .dropout_is_module = false,
};

const Family kQwen3VlMoe = {
    .model_type = "qwen3_vl_moe",
    .kind = FamilyKind::kDecoder,
    .read = qwen3_vl_moe,
    .build = build_qwen2_vl,
    .measured = kCausalLmAlone,
    .special_tokens = {.begins = false, .ends = false},
    .dropout_is_module = false,
    .has_router_loss = true,
};

}  // namespace memcalc::family
