// config.json of encoder-decoders: transformers models/{t5,mt5,bart,whisper}/configuration_*.py (5.17).
#include <algorithm>
#include <array>

#include "memcalc/spec/hf_families.h"
#include "memcalc/spec/names.h"

namespace memcalc::hf {
namespace {

// feed_forward_proj: an activation, or "gated-" and an activation. "gated-gelu" means gelu_new.
constexpr std::array<std::string_view, 8> kProjections = {"relu",       "gelu",           "gelu_new",   "silu",
                                                          "gated-gelu", "gated-gelu_new", "gated-relu", "gated-silu"};

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
  spec.num_decoder_layers = config.json().nullable_int("num_decoder_layers", kLayerRange).value_or(spec.num_layers);
  spec.num_heads = config.size({"num_heads", "num_attention_heads"}, defaults.num_heads);
  spec.relative_attention_num_buckets = config.size({"relative_attention_num_buckets"}, 32);
  spec.dropout_rate = config.probability("dropout_rate", 0.1);
  std::string projection(defaults.feed_forward_proj);
  if (const auto given = config.json().optional_choice("feed_forward_proj", kProjections)) {
    projection = *given;
  } else {
    config.assume("feed_forward_proj = " + projection + " (absent from config.json; transformers' default)");
  }
  spec.is_gated_act = projection.starts_with("gated-");
  spec.dense_act_fn = spec.is_gated_act ? projection.substr(6) : projection;
  if (projection == "gated-gelu") spec.dense_act_fn = "gelu_new";
  // transformers 5.17 always says true, but keeps lm_head apart where the checkpoint holds one of its own: as the files
  // of T5 1.1, FLAN-T5 and mT5, which say false.
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  config.only_flag("is_encoder_decoder", true);
  config.check_parameter_count([&] {
    const std::int64_t inner = checked_multiply(spec.num_heads, spec.d_kv);
    const std::int64_t layer = checked_add(checked_multiply(8, linear_parameters(spec.d_model, inner)),
                                           checked_multiply(3, linear_parameters(spec.d_model, spec.d_ff)));
    return checked_add(checked_multiply(layer, spec.num_layers + spec.num_decoder_layers),
                       checked_multiply(2 * spec.vocab_size, spec.d_model));
  });
  return spec;
}

struct BartDefaults {
  std::int64_t vocab_size, d_model, layers, heads, ffn_dim;
  double dropout;
};

/// What BART and Whisper share; the names of the positions differ.
void read_bart(HfReader& config, const BartDefaults& defaults, BartSpec& spec) {
  spec.vocab_size = config.size({"vocab_size"}, defaults.vocab_size);
  spec.d_model = config.size({"d_model", "hidden_size"}, defaults.d_model);
  spec.encoder_layers = config.size({"encoder_layers"}, defaults.layers, kLayerRange);
  spec.encoder_ffn_dim = config.size({"encoder_ffn_dim"}, defaults.ffn_dim);
  spec.encoder_attention_heads = config.size({"encoder_attention_heads"}, defaults.heads);
  spec.decoder_layers = config.size({"decoder_layers"}, defaults.layers, kLayerRange);
  spec.decoder_ffn_dim = config.size({"decoder_ffn_dim"}, defaults.ffn_dim);
  spec.decoder_attention_heads = config.size({"decoder_attention_heads"}, defaults.heads);
  spec.activation_function = config.activation("activation_function", "gelu");
  spec.dropout = config.probability("dropout", defaults.dropout);
  spec.attention_dropout = config.probability("attention_dropout", 0);
  spec.activation_dropout = config.probability("activation_dropout", 0);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  config.divides("encoder_attention_heads", spec.encoder_attention_heads, "d_model", spec.d_model);
  config.divides("decoder_attention_heads", spec.decoder_attention_heads, "d_model", spec.d_model);
  config.only_flag("is_encoder_decoder", true);
  for (const std::string_view key : {"encoder_layerdrop", "decoder_layerdrop"}) {
    if (config.json().optional_double(key, {0, 1}).value_or(0) != 0) config.only_absent(key);
  }
  config.check_parameter_count([&] {
    const std::int64_t attention = checked_multiply(4, linear_parameters(spec.d_model, spec.d_model));
    const std::int64_t encoder =
        checked_add(attention, checked_multiply(2, linear_parameters(spec.d_model, spec.encoder_ffn_dim)));
    const std::int64_t decoder = checked_add(
        checked_multiply(2, attention), checked_multiply(2, linear_parameters(spec.d_model, spec.decoder_ffn_dim)));
    return checked_add(
        checked_add(checked_multiply(encoder, spec.encoder_layers), checked_multiply(decoder, spec.decoder_layers)),
        checked_multiply(2 * spec.vocab_size, spec.d_model));
  });
}

}  // namespace

Architecture bart(HfReader& config) {
  BartSpec spec;
  read_bart(config, {.vocab_size = 50265, .d_model = 1024, .layers = 12, .heads = 16, .ffn_dim = 4096, .dropout = 0.1},
            spec);
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, 1024);
  return spec;
}

Architecture whisper(HfReader& config) {
  WhisperSpec spec;
  read_bart(config, {.vocab_size = 51865, .d_model = 384, .layers = 4, .heads = 6, .ffn_dim = 1536, .dropout = 0.0},
            spec);
  spec.num_mel_bins = config.size({"num_mel_bins"}, 80);
  spec.max_source_positions = config.size({"max_source_positions"}, 1500);
  spec.max_position_embeddings = config.size({"max_target_positions"}, 448);
  config.only_flag("apply_spec_augment", false);
  return spec;
}

Architecture t5(HfReader& config) {
  T5Spec spec = t5_block(
      config, {.vocab_size = 32128, .d_ff = 2048, .num_layers = 6, .num_heads = 8, .feed_forward_proj = "relu"});
  // T5Config: the key decides about the scale, not about the tie.
  spec.scale_decoder_outputs = spec.tie_word_embeddings;
  return spec;
}

Architecture mt5(HfReader& config) {
  T5Spec spec = t5_block(
      config, {.vocab_size = 250112, .d_ff = 1024, .num_layers = 8, .num_heads = 6, .feed_forward_proj = "gated-gelu"});
  // MT5Config ties in every case from 5.0 on; before, it did not where config.json is silent.
  if (!config.flag("tie_word_embeddings", false)) spec.tied_by_transformers = true;
  spec.scale_decoder_outputs = false;
  return spec;
}

}  // namespace memcalc::hf
