// config.json of BART, as transformers 5.17 reads it: models/bart.
#include <string>

#include "memcalc/families/bart/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {

void read_bart(HfReader& config, const BartDefaults& defaults, BartSpec& spec) {
  spec.vocab_size = config.size({"vocab_size"}, defaults.vocab_size);
  spec.d_model = config.size({"d_model", "hidden_size"}, defaults.d_model);
  spec.encoder_layers = config.size({"encoder_layers"}, defaults.layers, kLayerRange);
  spec.encoder_ffn_dim = config.size({"encoder_ffn_dim"}, defaults.ffn_dim);
  spec.encoder_attention_heads = config.size({"encoder_attention_heads"}, defaults.heads);
  spec.decoder_layers = config.size({"decoder_layers"}, defaults.layers, kLayerRange);
  spec.decoder_ffn_dim = config.size({"decoder_ffn_dim"}, defaults.ffn_dim);
  spec.decoder_attention_heads = config.size({"decoder_attention_heads"}, defaults.heads);
  spec.activation_function = config.activation("activation_function", defaults.activation);
  spec.dropout = config.probability("dropout", defaults.dropout);
  spec.attention_dropout = config.probability("attention_dropout", defaults.attention_dropout);
  spec.activation_dropout = config.probability("activation_dropout", 0);
  // Without it the encoder, the decoder and the head each have a matrix of their own beside `shared`.
  config.only_flag("tie_word_embeddings", true);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  config.divides("encoder_attention_heads", spec.encoder_attention_heads, "d_model", spec.d_model);
  config.divides("decoder_attention_heads", spec.decoder_attention_heads, "d_model", spec.d_model);
  config.only_flag("is_encoder_decoder", true);
  for (const std::string_view key : {"encoder_layerdrop", "decoder_layerdrop"}) {
    const double layerdrop = config.json().optional_double(key, {0, 1}).value_or(defaults.layerdrop);
    if (layerdrop != 0) config.assume(std::string(key) + " skips no layer: a step of all layers is the largest");
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

BartSpec bart_spec(HfReader& config, const BartDefaults& defaults) {
  BartSpec spec;
  read_bart(config, defaults, spec);
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, 1024);
  return spec;
}

Architecture bart(HfReader& config) { return bart_spec(config); }

namespace {}  // namespace

const Family kBart = {
    .model_type = "bart",
    .kind = FamilyKind::kEncoderDecoder,
    .read = bart,
    .build = build_bart,
    .size_keys = kSeq2SeqKeys,
    .measured = kSeq2SeqAlone,
    .special_tokens = {.has_decoder_start = true, .forces_end = true},
    .dropout_is_module = false,
    .keeps_cache_in_inference = true,
    .skips_layers_at_random = true,
    .instructions_per_operator = 170,
};

}  // namespace memcalc::family
