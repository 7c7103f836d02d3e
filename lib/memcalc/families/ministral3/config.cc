// config.json of Ministral 3 and Mistral 3, as transformers 5.17 reads it: models/ministral3, models/mistral3.
// MIRRORS(transformers, "models/mistral3/configuration_mistral3.py", "5.17.0")
// MIRRORS(transformers, "models/pixtral/configuration_pixtral.py", "5.17.0")
#include <string>

#include "memcalc/families/ministral3/spec.h"
#include "memcalc/spec/config_part.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/image_text_spec.h"
#include "memcalc/spec/text_config.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

/// Without it the forward of transformers fails.
void check_query_scale(const HfReader& config) {
  for (const std::string_view name : {"rope_parameters", "rope_scaling"}) {
    const std::optional<JsonObject> rope = config.json().nullable_object(name);
    if (rope && !rope->has("llama_4_scaling_beta")) {
      throw config.json().error(name, "has no llama_4_scaling_beta; accepted: a number, which scales the queries");
    }
  }
}

Architecture ministral3(HfReader& config) {
  Ministral3Spec spec;
  read_decoder(config,
               {.vocab_size = 131072,
                .intermediate_size = 14336,
                .num_hidden_layers = 34,
                .num_key_value_heads = 8,
                .head_dim = 128,
                .max_position_embeddings = 262144},
               spec);
  spec.sliding_window = config.nullable_size("sliding_window");
  spec.yarn_positions = has_yarn_positions(config, true);
  check_query_scale(config);
  return spec;
}

std::int64_t mistral3_places(const Architecture& parts, const ImageSize& image) {
  const auto& own = parts.as<Mistral3Parts>();
  return (image.height / own.step()) * (image.width / own.step());
}

PixtralTowerSpec pixtral_tower(HfReader& config) {
  const std::string type = config.json().nullable_string("model_type").value_or("pixtral");
  if (type != "pixtral") {
    throw config.json().error("model_type", type + " is not modelled; accepted: pixtral", ErrorCode::kUnsupported);
  }
  PixtralTowerSpec spec;
  spec.hidden_size = config.size({"hidden_size"}, 1024);
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, 24, kLayerRange);
  spec.num_attention_heads = config.size({"num_attention_heads"}, 16);
  spec.intermediate_size = config.size({"intermediate_size"}, 4096);
  spec.num_channels = config.size({"num_channels"}, 3);
  spec.patch_size = config.size({"patch_size"}, 16);
  spec.hidden_act = config.activation("hidden_act", "gelu");
  spec.attention_dropout = config.probability("attention_dropout", 0);
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  config.check_parameter_count([&] {
    return checked_multiply(spec.num_hidden_layers,
                            checked_multiply(7, linear_parameters(spec.hidden_size, spec.intermediate_size)));
  });
  return spec;
}

/// The model of images and text that the hub's Mistral Small 3.1 and 3.2 are; its text model alone, which is Mistral's
/// unless it says Ministral 3's, unless a run shows images.
Architecture mistral3(HfReader& config) {
  const std::optional<JsonObject> text = config.json().nullable_object("text_config");
  if (!text) throw config.json().error("text_config", "missing; accepted: the configuration of the text model");
  constexpr std::string_view kTexts[] = {"mistral", "ministral3"};
  const std::optional<JsonObject> vision = config.json().nullable_object("vision_config");
  if (!vision) {
    ImageTextSpec alone = read_text_config(config, kTexts, "mistral", {.tie = TieKey::kEither});
    config.assume("mistral3 is its text model (text_config): no vision tower, no projector, no images");
    return alone.text;
  }
  // Mistral3Config ties where nothing is said, but no head that the checkpoint holds: those of the hub do.
  ImageTextSpec spec = read_text_config(config, kTexts, "mistral", {.tie = TieKey::kEither});
  spec.images.reset();
  Mistral3Parts parts;
  read_part(config, "vision_config", "mistral3 vision_config",
            [&](HfReader& reader) { parts.tower = pixtral_tower(reader); });
  parts.spatial_merge_size = config.size({"spatial_merge_size"}, 2);
  parts.projector_act = config.activation("projector_hidden_act", "gelu");
  parts.projector_bias = config.flag("multimodal_projector_bias", false);
  const NumberOrList layer =
      number_or_list(config.json(), "vision_feature_layer", -1, {-kLayerRange.max, kLayerRange.max});
  if (layer.is_list || layer.numbers.front() != -1) {
    throw config.json().error("vision_feature_layer", "states of other layers are not modelled; accepted: -1",
                              ErrorCode::kUnsupported);
  }
  spec.side_multiple = checked_multiply(parts.tower.patch_size, parts.spatial_merge_size);
  spec.image_size = 16 * spec.side_multiple;
  spec.places_of_image = mistral3_places;
  spec.parts = parts;
  return spec;
}

}  // namespace

const Family kMinistral3 = {
    .model_type = "ministral3",
    .kind = FamilyKind::kDecoder,
    .read = ministral3,
    .build = build_ministral3,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kDensePlan,
    .dropout_is_module = false,
    .answers_questions = true,
    .instructions_per_operator = 56,
    .fp8_layers = true,
};

const Family kMistral3 = {
    .model_type = "mistral3",
    .kind = FamilyKind::kDecoder,
    .read = mistral3,
    .build = build_mistral3,
    .measured = kCausalLmAlone,
    .tp_plan = kDensePlan,
    .dropout_is_module = false,
    .fp8_layers = true,
};

}  // namespace memcalc::family
