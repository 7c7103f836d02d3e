// config.json of Gemma 4, as transformers 5.17 reads it: models/gemma4, models/gemma4_unified. Those of the hub have
// the text model's in text_config.
#include <algorithm>
#include <span>
#include <string>

#include "memcalc/families/gemma4/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

/// `is_unified`: Gemma4UnifiedTextConfig, which has neither experts nor embeddings of layers.
Gemma4Spec read_text(HfReader& config, bool is_unified) {
  Gemma4Spec spec;
  read_decoder(config,
               {.vocab_size = 262144,
                .hidden_size = 2304,
                .intermediate_size = 9216,
                .num_hidden_layers = 30,
                .num_attention_heads = 8,
                .num_key_value_heads = 4,
                .head_dim = 256,
                .activation_key = "hidden_activation",
                .activation = "gelu_pytorch_tanh",
                .max_position_embeddings = is_unified ? 262144 : 131072,
                .tie_word_embeddings = true},
               spec);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.sliding_window = config.size({"sliding_window"}, 512);
  spec.sliding_layers = layer_types(config, spec.num_hidden_layers);
  for (std::int64_t i = static_cast<std::int64_t>(spec.sliding_layers.size()); i < spec.num_hidden_layers; ++i) {
    spec.sliding_layers.push_back((i + 1) % 6 != 0);
  }
  spec.sliding_layers.back() = false;  // __post_init__
  spec.final_softcap =
      config.json().has("final_logit_softcapping") && !config.json().is_null("final_logit_softcapping");
  spec.global_head_dim = config.size({"global_head_dim"}, 512);
  spec.keys_are_values = config.flag("attention_k_eq_v", false);
  const std::optional<std::int64_t> global_heads = config.nullable_size("num_global_key_value_heads");
  spec.global_key_value_heads =
      (spec.keys_are_values || is_unified) && global_heads ? *global_heads : spec.num_key_value_heads;
  if (spec.global_key_value_heads < 1 || spec.num_attention_heads % spec.global_key_value_heads != 0) {
    throw config.json().error("num_global_key_value_heads",
                              "does not divide num_attention_heads, " + std::to_string(spec.num_attention_heads));
  }
  spec.kv_shared_layers =
      config.json().nullable_int("num_kv_shared_layers", {0, spec.num_hidden_layers - 1}).value_or(0);
  spec.double_wide_mlp = config.flag("use_double_wide_mlp", false);
  if (config.json().nullable_string("use_bidirectional_attention") == "all") {
    throw config.json().error("use_bidirectional_attention", "all is not modelled; accepted: vision, null",
                              ErrorCode::kUnsupported);
  }
  if (is_unified) return spec;
  spec.per_layer_input = config.json().nullable_int("hidden_size_per_layer_input", {0, kSizeRange.max}).value_or(256);
  spec.per_layer_vocabulary = config.size({"vocab_size_per_layer_input"}, 262144);
  if (config.flag("enable_moe_block", false)) {
    spec.experts = {.count = config.size({"num_experts"}, 0),
                    .per_token = config.size({"top_k_experts"}, 0),
                    .intermediate_size = config.size({"moe_intermediate_size"}, 0)};
    refuse_auxiliary_loss(config);
  }
  config.check_parameter_count([&] {
    const std::int64_t layers = spec.num_hidden_layers;
    return checked_multiply(checked_multiply(layers, std::max<std::int64_t>(spec.experts.count, 1)),
                            checked_multiply(3, linear_parameters(spec.hidden_size, spec.experts.intermediate_size)));
  });
  return spec;
}

Architecture gemma4_text(HfReader& config) { return read_text(config, false); }
Architecture gemma4_unified_text(HfReader& config) { return read_text(config, true); }

Architecture of_text_config(HfReader& config, const char* type, bool is_unified) {
  const JsonObject text_json = config.json().required_object("text_config");
  HfReader text(text_json, type);
  Gemma4Spec spec = read_text(text, is_unified);
  for (std::string& line : text.assumptions()) config.assume(std::move(line));
  config.assume(std::string(is_unified ? "gemma4_unified" : "gemma4") +
                " is its text model (text_config) alone: what sees images and hears is not modelled");
  return spec;
}

Architecture gemma4(HfReader& config) { return of_text_config(config, "gemma4_text", false); }
Architecture gemma4_unified(HfReader& config) { return of_text_config(config, "gemma4_unified_text", true); }

constexpr Family family_of_gemma4(std::string_view model_type, Architecture (*read)(HfReader&),
                                  std::span<const Task> measured = {}) {
  return {.model_type = model_type,
          .kind = FamilyKind::kDecoder,
          .read = read,
          .build = build_gemma4,
          .measured = measured,
          .dropout_is_module = false,
          .compiled_whole_alone = true};
}

}  // namespace

const Family kGemma4 = family_of_gemma4("gemma4", gemma4);
const Family kGemma4Text = family_of_gemma4("gemma4_text", gemma4_text, kCausalLmAlone);
const Family kGemma4Unified = family_of_gemma4("gemma4_unified", gemma4_unified);
const Family kGemma4UnifiedText = family_of_gemma4("gemma4_unified_text", gemma4_unified_text, kCausalLmAlone);

}  // namespace memcalc::family
