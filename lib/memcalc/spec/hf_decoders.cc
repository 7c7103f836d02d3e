#include "memcalc/spec/hf_decoders.h"

#include <algorithm>
#include <array>

namespace memcalc::hf {
namespace {

/// Of partial_rotary_factor, under its own name or in rope_parameters; int(head_dim * factor) as in the rotary modules.
std::int64_t rotary_dim(HfReader& config, std::string_view key, double fallback, std::int64_t head_dim) {
  constexpr DoubleRange range = {0, 1};
  std::optional<double> factor = config.json().nullable_double(key, range);
  for (const std::string_view nested : {"rope_parameters", "rope_scaling"}) {
    if (factor) break;
    if (const std::optional<JsonObject> rope = config.json().nullable_object(nested)) {
      factor = rope->nullable_double("partial_rotary_factor", range);
    }
  }
  if (!factor) factor = config.probability(key, fallback);  // lists the default
  const auto dim = static_cast<std::int64_t>(static_cast<double>(head_dim) * *factor);
  if (dim < 2 || dim % 2 != 0) {
    throw config.json().error(key, "rotates " + std::to_string(dim) + " of " + std::to_string(head_dim) +
                                       " numbers of a head; accepted: an even number of 2 or more");
  }
  return dim;
}

/// Gemma 2 and 3: a window and layers of two types, which need each other.
void read_alternation(HfReader& config, std::int64_t pattern, RotaryDecoderSpec& spec, std::vector<bool>& sliding) {
  read_window(config, spec);
  sliding = layer_types(config, spec.num_hidden_layers);
  if (sliding.empty()) sliding = sliding_but_every(pattern, spec.num_hidden_layers);
  if (!spec.sliding_window) {
    throw config.json().error("sliding_window", "null; accepted: a size, since the model has sliding layers");
  }
}

/// Qwen2 and Qwen3: sliding layers only where use_sliding_window is set, from max_window_layers on.
void read_qwen_window(HfReader& config, RotaryDecoderSpec& spec, std::vector<bool>& sliding) {
  if (!config.flag("use_sliding_window", false)) return;
  read_window(config, spec);
  sliding = layer_types(config, spec.num_hidden_layers);
  if (!sliding.empty() || !spec.sliding_window) return;
  const std::int64_t first = config.size({"max_window_layers"}, 28, {0, kSizeRange.max});
  for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) sliding.push_back(i >= first);
}

bool capped(const HfReader& config, std::string_view key, bool fallback) {
  if (!config.json().has(key)) return fallback;
  return config.json().nullable_double(key, {0, 1e9}).value_or(0) > 0;
}

void refuse_bidirectional(const HfReader& config) {
  if (config.json().is_null("use_bidirectional_attention")) return;
  config.only_flag("use_bidirectional_attention", false);
}

constexpr DecoderDefaults kQwen = {
    .vocab_size = 151936, .intermediate_size = 22016, .num_key_value_heads = 32, .max_position_embeddings = 32768};

}  // namespace

void read_decoder(HfReader& config, const DecoderDefaults& defaults, RotaryDecoderSpec& spec) {
  spec.vocab_size = config.size({"vocab_size"}, defaults.vocab_size);
  spec.hidden_size = config.size({"hidden_size"}, defaults.hidden_size);
  spec.intermediate_size = config.size({"intermediate_size"}, defaults.intermediate_size);
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, defaults.num_hidden_layers, kLayerRange);
  spec.num_attention_heads = config.size({"num_attention_heads"}, defaults.num_attention_heads);
  if (config.json().is_null("num_key_value_heads")) {
    spec.num_key_value_heads = spec.num_attention_heads;
  } else {
    spec.num_key_value_heads =
        config.size({"num_key_value_heads"}, defaults.num_key_value_heads.value_or(spec.num_attention_heads));
  }
  spec.hidden_act = config.activation(defaults.activation_key, defaults.activation);
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, defaults.max_position_embeddings);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", defaults.tie_word_embeddings);
  spec.attention_dropout = config.json().is_null("attention_dropout") ? 0 : config.probability("attention_dropout", 0);
  std::optional<std::int64_t> head_dim = defaults.fixed_head_dim;
  if (!head_dim) head_dim = config.nullable_size("head_dim");
  if (!head_dim && defaults.head_dim) head_dim = config.size({"head_dim"}, *defaults.head_dim);
  spec.head_dim = head_dim.value_or(spec.hidden_size / spec.num_attention_heads);
  spec.num_labels = config.num_labels(/*list_default=*/false);
  // With its own head_dim a model needs no such multiple; LlamaConfig asks for it all the same.
  if (!head_dim) config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  config.divides("num_key_value_heads", spec.num_key_value_heads, "num_attention_heads", spec.num_attention_heads);
  if (spec.head_dim % 2 != 0) {
    throw config.json().error(
        head_dim ? "head_dim" : "hidden_size",
        "gives a head of " + std::to_string(spec.head_dim) + "; accepted: an even one (rotary positions turn pairs)");
  }
  config.check_parameter_count([&] {
    const std::int64_t heads = checked_multiply(2, checked_add(spec.num_attention_heads, spec.num_key_value_heads));
    const std::int64_t layer =
        checked_add(linear_parameters(spec.hidden_size, checked_multiply(heads, spec.head_dim)),
                    checked_multiply(3, linear_parameters(spec.hidden_size, spec.intermediate_size)));
    return checked_add(checked_multiply(layer, spec.num_hidden_layers),
                       checked_multiply(2 * spec.vocab_size + spec.num_labels, spec.hidden_size));
  });
}

std::vector<bool> layer_types(HfReader& config, std::int64_t layers) {
  std::vector<bool> sliding;
  if (!config.json().has("layer_types") || config.json().is_null("layer_types")) return sliding;
  for (const std::string& type : config.json().optional_strings("layer_types")) {
    if (type != "sliding_attention" && type != "full_attention") {
      throw config.json().error("layer_types", "'" + type +
                                                   "' is not modelled; accepted: full_attention, "
                                                   "sliding_attention");
    }
    sliding.push_back(type == "sliding_attention");
  }
  if (static_cast<std::int64_t>(sliding.size()) != layers) {
    throw config.json().error("layer_types", "has " + std::to_string(sliding.size()) +
                                                 " entries; accepted: one for each of num_hidden_layers (" +
                                                 std::to_string(layers) + ")");
  }
  return sliding;
}

std::vector<bool> sliding_but_every(std::int64_t pattern, std::int64_t layers) {
  std::vector<bool> sliding;
  for (std::int64_t i = 0; i < layers; ++i) sliding.push_back((i + 1) % pattern != 0);
  return sliding;
}

void read_window(HfReader& config, RotaryDecoderSpec& spec, std::int64_t fallback) {
  if (!config.json().is_null("sliding_window")) spec.sliding_window = config.size({"sliding_window"}, fallback);
}

Architecture llama(HfReader& config) {
  LlamaSpec spec;
  read_decoder(config, {.intermediate_size = 11008, .max_position_embeddings = 2048}, spec);
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.mlp_bias = config.flag("mlp_bias", false);
  return spec;
}

Architecture mistral(HfReader& config) {
  LlamaSpec spec;
  read_decoder(config, {.intermediate_size = 14336, .num_key_value_heads = 8, .max_position_embeddings = 131072}, spec);
  read_window(config, spec);
  return spec;
}

Architecture qwen2(HfReader& config) {
  Qwen2Spec spec;
  read_decoder(config, kQwen, spec);
  read_qwen_window(config, spec, spec.sliding_layers);
  return spec;
}

Architecture qwen3(HfReader& config) {
  Qwen3Spec spec;
  DecoderDefaults defaults = kQwen;
  defaults.head_dim = 128;
  read_decoder(config, defaults, spec);
  spec.attention_bias = config.flag("attention_bias", false);
  read_qwen_window(config, spec, spec.sliding_layers);
  return spec;
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

Architecture phi(HfReader& config) {
  PhiSpec spec;
  read_decoder(config,
               {.vocab_size = 51200,
                .hidden_size = 2048,
                .intermediate_size = 8192,
                .num_hidden_layers = 24,
                .activation = "gelu_new",
                .max_position_embeddings = 2048},
               spec);
  spec.rotary_dim = rotary_dim(config, "partial_rotary_factor", 0.5, spec.head_dim);
  spec.qk_layernorm = config.flag("qk_layernorm", false);
  spec.resid_pdrop = config.probability("resid_pdrop", 0);
  spec.embd_pdrop = config.probability("embd_pdrop", 0);
  return spec;
}

Architecture phi3(HfReader& config) {
  Phi3Spec spec;
  read_decoder(config,
               {.vocab_size = 32064, .hidden_size = 3072, .intermediate_size = 8192, .max_position_embeddings = 4096},
               spec);
  if (config.json().has("sliding_window")) read_window(config, spec);
  spec.rotary_dim = rotary_dim(config, "partial_rotary_factor", 1.0, spec.head_dim);
  spec.resid_pdrop = config.probability("resid_pdrop", 0);
  return spec;
}

Architecture olmo2(HfReader& config) {
  Olmo2Spec spec;
  read_decoder(config, {.vocab_size = 50304, .intermediate_size = 11008, .max_position_embeddings = 2048}, spec);
  spec.attention_bias = config.flag("attention_bias", false);
  return spec;
}

Architecture gpt_neox(HfReader& config) {
  GptNeoxSpec spec;
  spec.vocab_size = config.size({"vocab_size"}, 50432);
  spec.hidden_size = config.size({"hidden_size"}, 6144);
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, 44, kLayerRange);
  spec.num_attention_heads = config.size({"num_attention_heads"}, 64);
  spec.intermediate_size = config.size({"intermediate_size"}, 24576);
  spec.hidden_act = config.activation("hidden_act", "gelu");
  spec.attention_dropout = config.probability("attention_dropout", 0);
  spec.hidden_dropout = config.probability("hidden_dropout", 0);
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, 2048);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", false);
  spec.use_parallel_residual = config.flag("use_parallel_residual", true);
  spec.attention_bias = config.flag("attention_bias", true);
  spec.num_labels = config.num_labels(/*list_default=*/false);
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  spec.rotary_dim = rotary_dim(config, "rotary_pct", 0.25, spec.hidden_size / spec.num_attention_heads);
  config.check_parameter_count([&] {
    const std::int64_t layer =
        checked_add(checked_multiply(4, linear_parameters(spec.hidden_size, spec.hidden_size)),
                    checked_multiply(2, linear_parameters(spec.hidden_size, spec.intermediate_size)));
    return checked_add(checked_multiply(layer, spec.num_hidden_layers),
                       checked_multiply(2 * spec.vocab_size + spec.num_labels, spec.hidden_size));
  });
  return spec;
}

Architecture opt(HfReader& config) {
  OptSpec spec;
  spec.vocab_size = config.size({"vocab_size"}, 50272);
  spec.hidden_size = config.size({"hidden_size"}, 768);
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, 12, kLayerRange);
  spec.ffn_dim = config.size({"ffn_dim"}, 3072);
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, 2048);
  spec.do_layer_norm_before = config.flag("do_layer_norm_before", true);
  spec.remove_final_layer_norm = config.json().optional_bool("_remove_final_layer_norm").value_or(false);
  spec.word_embed_proj_dim = config.nullable_size("word_embed_proj_dim").value_or(spec.hidden_size);
  spec.dropout = config.probability("dropout", 0.1);
  spec.attention_dropout = config.probability("attention_dropout", 0);
  spec.num_attention_heads = config.size({"num_attention_heads"}, 12);
  spec.activation_function = config.activation("activation_function", "relu");
  spec.enable_bias = config.flag("enable_bias", true);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.num_labels = config.num_labels(/*list_default=*/false);
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  config.only_flag("layer_norm_elementwise_affine", true);
  if (config.json().optional_double("layerdrop", {0, 1}).value_or(0) != 0) {
    throw config.json().error("layerdrop", "leaving layers out at random is not modelled; accepted: 0",
                              ErrorCode::kUnsupported);
  }
  config.check_parameter_count([&] {
    const std::int64_t layer = checked_add(checked_multiply(4, linear_parameters(spec.hidden_size, spec.hidden_size)),
                                           checked_multiply(2, linear_parameters(spec.hidden_size, spec.ffn_dim)));
    const std::int64_t rows = 2 * spec.vocab_size + spec.max_position_embeddings + spec.num_labels;
    return checked_add(checked_multiply(layer, spec.num_hidden_layers),
                       checked_multiply(rows, checked_add(spec.hidden_size, spec.word_embed_proj_dim)));
  });
  return spec;
}

}  // namespace memcalc::hf
