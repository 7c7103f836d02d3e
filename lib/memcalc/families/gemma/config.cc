// config.json of Gemma 1 to 3, as transformers 5.17 reads it: models/gemma, models/gemma2, models/gemma3.
// MIRRORS(transformers, "models/gemma3/modeling_gemma3.py", "5.17.0")
// MIRRORS(transformers, "models/paligemma/modeling_paligemma.py", "5.17.0")
#include <string>
#include <utility>

#include "memcalc/families/gemma/spec.h"
#include "memcalc/spec/config_part.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/image_text_spec.h"
#include "memcalc/spec/text_config.h"

namespace memcalc::family {
namespace {

/// Gemma 2 and 3: a window and layers of two types, which need each other.
void read_alternation(HfReader& config, std::int64_t pattern, RotaryDecoderSpec& spec, std::vector<bool>& sliding) {
  read_window(config, spec);
  sliding = layer_types(config, spec.num_hidden_layers);
  if (sliding.empty()) sliding = sliding_but_every(pattern, spec.num_hidden_layers);
  if (!spec.sliding_window) {
    throw config.json().error("sliding_window", "null; accepted: a size, since the model has sliding layers");
  }
}

void refuse_bidirectional(const HfReader& config) {
  if (config.json().is_null("use_bidirectional_attention")) return;
  config.only_flag("use_bidirectional_attention", false);
}

Architecture gemma(HfReader& config) {
  GemmaSpec spec;
  read_decoder(config,
               {.vocab_size = 256000,
                .hidden_size = 3072,
                .intermediate_size = 24576,
                .num_hidden_layers = 28,
                .num_attention_heads = 16,
                .num_key_value_heads = 16,
                .head_dim = 256,
                .activation = "gelu_pytorch_tanh",
                .max_position_embeddings = 8192,
                .tie_word_embeddings = true},
               spec);
  spec.attention_bias = config.flag("attention_bias", false);
  refuse_bidirectional(config);
  return spec;
}

/// Of Gemma2Config; those of Gemma3TextConfig are the same but for two.
DecoderDefaults gemma2_sizes(std::int64_t vocab_size, std::int64_t max_position_embeddings) {
  return {.vocab_size = vocab_size,
          .hidden_size = 2304,
          .intermediate_size = 9216,
          .num_hidden_layers = 26,
          .num_attention_heads = 8,
          .num_key_value_heads = 4,
          .head_dim = 256,
          .activation_key = "hidden_activation",
          .activation = "gelu_pytorch_tanh",
          .max_position_embeddings = max_position_embeddings,
          .tie_word_embeddings = true};
}

Architecture gemma2(HfReader& config) {
  Gemma2Spec spec;
  read_decoder(config, gemma2_sizes(256000, 8192), spec);
  spec.attention_bias = config.flag("attention_bias", false);
  read_alternation(config, 2, spec, spec.sliding_layers);
  spec.attention_softcap = capped(config, "attn_logit_softcapping", true);
  spec.final_softcap = capped(config, "final_logit_softcapping", true);
  refuse_bidirectional(config);
  return spec;
}

Architecture gemma3_text(HfReader& config) {
  Gemma3Spec spec;
  read_decoder(config, gemma2_sizes(262208, 131072), spec);
  spec.attention_bias = config.flag("attention_bias", false);
  const std::int64_t pattern = config.nullable_size("sliding_window_pattern").value_or(6);
  read_alternation(config, pattern, spec, spec.sliding_layers);
  spec.final_softcap = capped(config, "final_logit_softcapping", false);
  refuse_bidirectional(config);
  return spec;
}

std::int64_t gemma3_places(const Architecture& parts, const ImageSize& /*image*/) {
  return parts.as<Gemma3VisionParts>().mm_tokens_per_image;
}

std::int64_t paligemma_places(const Architecture& parts, const ImageSize& /*image*/) {
  return parts.as<PaliGemmaParts>().tower.patches();
}

/// Else modeling_gemma3.py and modeling_paligemma.py put other ids in the places of the images.
void check_image_token(const HfReader& config, std::int64_t fallback, std::int64_t vocabulary) {
  if (config.json().nullable_int("image_token_index").value_or(fallback) >= vocabulary) {
    throw config.json().error("image_token_index", "is beyond the text model's vocab_size; accepted: one of its ids",
                              ErrorCode::kUnsupported);
  }
}

/// The model of images and text that the hub's Gemma 3 of 4B to 27B are; its text model alone unless a run shows
/// images.
Architecture gemma3(HfReader& config) {
  const JsonObject text_config = config.json().required_object("text_config");
  HfReader text(text_config, "gemma3_text");
  Architecture architecture = gemma3_text(text);
  for (std::string& line : text.assumptions()) config.assume(std::move(line));
  const std::optional<JsonObject> vision_config = config.json().nullable_object("vision_config");
  if (!vision_config || vision_config->optional_bool("vision_use_head").value_or(true)) {
    config.assume("gemma3 is its text model (text_config): no vision tower, no projector, no images");
    return architecture;
  }
  ImageTextSpec spec = around_text<Gemma3Spec>(architecture);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.images.reset();
  Gemma3VisionParts parts;
  read_part(config, "vision_config", "gemma3 vision_config",
            [&](HfReader& vision) { parts.tower = image_tower(vision, "siglip_vision_model"); });
  parts.mm_tokens_per_image = config.size({"mm_tokens_per_image"}, 256);
  const std::int64_t side = parts.tokens_per_side();
  if (side * side != parts.mm_tokens_per_image || parts.patches_per_side() % side != 0) {
    throw config.json().error("mm_tokens_per_image",
                              "is no square whose side divides that of the patches; accepted: "
                              "256 of 64 x 64 patches");
  }
  check_image_token(config, 262144, spec.vocab_size);
  spec.image_size = parts.tower.image_size;
  spec.places_of_image = gemma3_places;
  spec.parts = parts;
  return spec;
}

Architecture paligemma(HfReader& config) {
  constexpr std::string_view kTexts[] = {"gemma", "gemma2"};
  ImageTextSpec spec = read_text_config(config, kTexts, "gemma", {.tied = true});
  PaliGemmaParts parts;
  read_part(config, "vision_config", "paligemma vision_config",
            [&](HfReader& vision) { parts.tower = image_tower(vision, "siglip_vision_model"); });
  parts.projection_dim = config.size({"projection_dim"}, 2048);
  if (parts.projection_dim != spec.hidden_size) {
    throw config.json().error("projection_dim", std::to_string(parts.projection_dim) +
                                                    "; accepted: the text model's hidden_size, " +
                                                    std::to_string(spec.hidden_size));
  }
  check_image_token(config, 256000, spec.vocab_size);
  spec.image_size = parts.tower.image_size;
  spec.places_of_image = paligemma_places;
  spec.parts = parts;
  return spec;
}

constexpr std::string_view kGemmaPlan[] = {"embed_tokens", "q_proj",    "k_proj",  "v_proj",
                                           "o_proj",       "gate_proj", "up_proj", "down_proj"};
constexpr std::string_view kGemmaNormedPlan[] = {"embed_tokens", "q_proj", "k_proj",    "v_proj",  "o_proj",
                                                 "q_norm",       "k_norm", "gate_proj", "up_proj", "down_proj"};

}  // namespace

const Family kGemma = {
    .model_type = "gemma",
    .kind = FamilyKind::kDecoder,
    .read = gemma,
    .build = build_gemma,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAndClassifier,
    .tp_plan = kGemmaPlan,
    .dropout_is_module = false,
    .fp8_layers = true,
    .has_stages = true,
};

const Family kGemma2 = {
    .model_type = "gemma2",
    .kind = FamilyKind::kDecoder,
    .read = gemma2,
    .build = build_gemma2,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAndClassifier,
    .tp_plan = kGemmaPlan,
    .is_eager = [](const Behaviors& b) -> bool { return b.gemma2_eager; },
    .dropout_is_module = false,
    .instructions_per_operator = 45,
    .fp8_layers = true,
    .has_stages = true,
};

const Family kGemma3 = {
    .model_type = "gemma3",
    .kind = FamilyKind::kDecoder,
    .read = gemma3,
    .build = build_gemma3_vision,
    .measured = kCausalLmAlone,
    .tp_plan = kGemmaNormedPlan,
    .dropout_is_module = false,
    .fp8_layers = true,
    .has_stages = true,
};

const Family kGemma3Text = {
    .model_type = "gemma3_text",
    .kind = FamilyKind::kDecoder,
    .read = gemma3_text,
    .build = build_gemma3,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAndClassifier,
    .tp_plan = kGemmaNormedPlan,
    .dropout_is_module = false,
    .instructions_per_operator = 38,
    .fp8_layers = true,
    .has_stages = true,
};

const Family kPaliGemma = {
    .model_type = "paligemma",
    .kind = FamilyKind::kDecoder,
    .read = paligemma,
    .build = build_paligemma,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
};

}  // namespace memcalc::family
