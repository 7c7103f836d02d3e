// config.json of Gemma 1 to 3, as transformers 5.17 reads it: models/gemma, models/gemma2, models/gemma3.
#include <string>
#include <utility>

#include "memcalc/families/gemma/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

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

Architecture gemma2(HfReader& config) {
  Gemma2Spec spec;
  read_decoder(config,
               {.vocab_size = 256000,
                .hidden_size = 2304,
                .intermediate_size = 9216,
                .num_hidden_layers = 26,
                .num_attention_heads = 8,
                .num_key_value_heads = 4,
                .head_dim = 256,
                .activation_key = "hidden_activation",
                .activation = "gelu_pytorch_tanh",
                .max_position_embeddings = 8192,
                .tie_word_embeddings = true},
               spec);
  spec.attention_bias = config.flag("attention_bias", false);
  read_alternation(config, 2, spec, spec.sliding_layers);
  spec.attention_softcap = capped(config, "attn_logit_softcapping", true);
  spec.final_softcap = capped(config, "final_logit_softcapping", true);
  refuse_bidirectional(config);
  return spec;
}

Architecture gemma3_text(HfReader& config) {
  Gemma3Spec spec;
  read_decoder(config,
               {.vocab_size = 262208,
                .hidden_size = 2304,
                .intermediate_size = 9216,
                .num_hidden_layers = 26,
                .num_attention_heads = 8,
                .num_key_value_heads = 4,
                .head_dim = 256,
                .activation_key = "hidden_activation",
                .activation = "gelu_pytorch_tanh",
                .max_position_embeddings = 131072,
                .tie_word_embeddings = true},
               spec);
  spec.attention_bias = config.flag("attention_bias", false);
  const std::int64_t pattern = config.nullable_size("sliding_window_pattern").value_or(6);
  read_alternation(config, pattern, spec, spec.sliding_layers);
  spec.final_softcap = capped(config, "final_logit_softcapping", false);
  refuse_bidirectional(config);
  return spec;
}

/// The model of images and text that the hub's Gemma 3 of 4B to 27B are: its text model.
Architecture gemma3(HfReader& config) {
  const JsonObject text_config = config.json().required_object("text_config");
  HfReader text(text_config, "gemma3_text");
  config.assume("gemma3 is its text model (text_config): no vision tower, no projector, no images");
  Architecture architecture = gemma3_text(text);
  for (std::string& line : text.assumptions()) config.assume(std::move(line));
  return architecture;
}

constexpr Task kMeasured[] = {Task::kCausalLm, Task::kSequenceClassification};
constexpr Task kMeasuredCausal[] = {Task::kCausalLm};
constexpr std::string_view kPlan[] = {"embed_tokens", "q_proj",    "k_proj",  "v_proj",
                                      "o_proj",       "gate_proj", "up_proj", "down_proj"};
constexpr std::string_view kNormedPlan[] = {"embed_tokens", "q_proj", "k_proj",    "v_proj",  "o_proj",
                                            "q_norm",       "k_norm", "gate_proj", "up_proj", "down_proj"};

}  // namespace

const Family kGemma = {
    .model_type = "gemma",
    .kind = FamilyKind::kDecoder,
    .read = gemma,
    .build = build_gemma,
    .size_keys = kDecoderKeys,
    .measured = kMeasured,
    .tp_plan = kPlan,
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
    .measured = kMeasured,
    .tp_plan = kPlan,
    .is_eager = [](const Behaviors& b) { return b.gemma2_eager; },
    .dropout_is_module = false,
    .fp8_layers = true,
    .has_stages = true,
};

const Family kGemma3 = {
    .model_type = "gemma3",
    .kind = FamilyKind::kDecoder,
    .read = gemma3,
    .build = build_gemma3,
    .measured = kMeasuredCausal,
    .tp_plan = kNormedPlan,
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
    .measured = kMeasured,
    .tp_plan = kNormedPlan,
    .dropout_is_module = false,
    .fp8_layers = true,
    .has_stages = true,
};

}  // namespace memcalc::family
