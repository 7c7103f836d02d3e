// config.json of OPT, as transformers 5.17 reads it: models/opt.
#include "memcalc/families/opt/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

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
    const std::int64_t layer = layer_parameters(spec.hidden_size, spec.ffn_dim, 2);
    const std::int64_t rows = 2 * spec.vocab_size + spec.max_position_embeddings + spec.num_labels;
    return checked_add(checked_multiply(layer, spec.num_hidden_layers),
                       checked_multiply(rows, checked_add(spec.hidden_size, spec.word_embed_proj_dim)));
  });
  return spec;
}

}  // namespace

const Family kOpt = {
    .model_type = "opt",
    .kind = FamilyKind::kDecoder,
    .read = opt,
    .build = build_opt,
    .size_keys = with(kEncoderKeys, 5, {"ffn_dim", ""}),
    .measured = kCausalLmAndClassifier,
    .dropout_is_module = false,
    .has_own_classifier = true,
    .skips_layers_at_random = true,
    .answers_questions = true,
    .instructions_per_operator = 143,
    .fp8_layers = true,
};

}  // namespace memcalc::family
