// config.json of encoder-decoders: transformers models/{t5,mt5,bart,whisper}/configuration_*.py (5.17).
#include <algorithm>
#include <array>

#include "memcalc/spec/hf_families.h"
#include "memcalc/spec/names.h"

namespace memcalc::hf {
namespace {

// feed_forward_proj: an activation, or "gated-" and an activation. "gated-gelu" means gelu_new.
constexpr std::array<std::string_view, 8> kProjections = {
    "relu", "gelu", "gelu_new", "silu", "gated-gelu", "gated-gelu_new", "gated-relu", "gated-silu"};

struct T5Defaults {
  std::int64_t vocab_size, d_ff, num_layers, num_heads;
  std::string_view feed_forward_proj;
};

T5Spec t5_block(HfReader& config, const T5Defaults& defaults) {
  T5Spec spec;
  spec.vocab_size = config.size({"vocab_size"}, defaults.vocab_size);
  spec.d_model = config.size({"d_model", "hidden_size"}, 512);
  spec.d_kv = config.size({"d_kv", "head_dim"}, 64);
  spec.d_ff = config.size({"d_ff"}, defaults.d_ff);
  spec.num_layers = config.size({"num_layers", "num_hidden_layers"}, defaults.num_layers, kLayerRange);
  spec.num_decoder_layers =
      config.json().nullable_int("num_decoder_layers", kLayerRange).value_or(spec.num_layers);
  spec.num_heads = config.size({"num_heads", "num_attention_heads"}, defaults.num_heads);
  spec.relative_attention_num_buckets = config.size({"relative_attention_num_buckets"}, 32);
  spec.dropout_rate = config.probability("dropout_rate", 0.1);
  std::string projection(defaults.feed_forward_proj);
  if (const auto given = config.json().optional_choice("feed_forward_proj", kProjections)) projection = *given;
  spec.is_gated_act = projection.starts_with("gated-");
  spec.dense_act_fn = spec.is_gated_act ? projection.substr(6) : projection;
  if (projection == "gated-gelu") spec.dense_act_fn = "gelu_new";
  spec.tie_word_embeddings = config.json().optional_bool("tie_word_embeddings").value_or(true);
  if (!spec.tie_word_embeddings) {
    config.assume("lm_head has weights of its own, as the published checkpoints (transformers 5.17 ties it only where "
                  "the checkpoint has none, as in a model made from config.json)");
  }
  config.only_flag("is_encoder_decoder", true);
  config.check_parameter_count([&] {
    const std::int64_t inner = checked_multiply(spec.num_heads, spec.d_kv);
    const std::int64_t layer = checked_add(checked_multiply(8, matrix(spec.d_model, inner)),
                                           checked_multiply(3, matrix(spec.d_model, spec.d_ff)));
    return checked_add(checked_multiply(layer, spec.num_layers + spec.num_decoder_layers),
                       checked_multiply(2 * spec.vocab_size, spec.d_model));
  });
  return spec;
}

}  // namespace

Architecture t5(HfReader& config) {
  T5Spec spec = t5_block(config, {.vocab_size = 32128,
                                  .d_ff = 2048,
                                  .num_layers = 6,
                                  .num_heads = 8,
                                  .feed_forward_proj = "relu"});
  // T5Config: the key decides about the scale, not about the tie.
  spec.scale_decoder_outputs = spec.tie_word_embeddings;
  return spec;
}

Architecture mt5(HfReader& config) {
  T5Spec spec = t5_block(config, {.vocab_size = 250112,
                                  .d_ff = 1024,
                                  .num_layers = 8,
                                  .num_heads = 6,
                                  .feed_forward_proj = "gated-gelu"});
  spec.scale_decoder_outputs = false;
  return spec;
}

}  // namespace memcalc::hf
