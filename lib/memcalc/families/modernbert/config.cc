// config.json of ModernBERT, as transformers 5.17 reads it: models/modernbert.
#include "memcalc/families/modernbert/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

/// "cls" or "mean"
bool pools_by_mean(const HfReader& config) {
  const std::string pooling = config.json().nullable_string("classifier_pooling").value_or("cls");
  if (pooling == "mean") return true;
  if (pooling != "cls") throw config.json().error_found("classifier_pooling", "cls, mean");
  return false;
}

/// layer_types, or the older global_attn_every_n_layers.
std::vector<bool> sliding_layers(HfReader& config, std::int64_t layers) {
  std::vector<bool> sliding = layer_types(config, layers);
  if (!sliding.empty()) return sliding;
  const std::int64_t every = config.nullable_size("global_attn_every_n_layers").value_or(3);
  for (std::int64_t i = 0; i < layers; ++i) sliding.push_back(i % every != 0);
  return sliding;
}

/// Of "default" and "linear" positions the operators are the same.
void check_rope(const JsonObject& rope) {
  for (const std::string_view key : {"rope_type", "type"}) {
    const std::optional<std::string> type = rope.nullable_string(key);
    if (type && *type != "default" && *type != "linear") throw rope.error_found(key, "default, linear");
  }
}

Architecture modernbert(HfReader& config) {
  ModernBertSpec spec;
  spec.vocab_size = config.size({"vocab_size"}, 50368);
  spec.hidden_size = config.size({"hidden_size"}, 768);
  spec.intermediate_size = config.size({"intermediate_size"}, 1152);
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, 22, kLayerRange);
  spec.num_attention_heads = config.size({"num_attention_heads"}, 12);
  spec.hidden_activation = config.activation("hidden_activation", "gelu");
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, 8192);
  spec.local_attention = config.size({"local_attention"}, 128);
  spec.sliding_layers = sliding_layers(config, spec.num_hidden_layers);
  spec.norm_bias = config.flag("norm_bias", false);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.mlp_bias = config.flag("mlp_bias", false);
  spec.decoder_bias = config.flag("decoder_bias", true);
  spec.attention_dropout = config.probability("attention_dropout", 0);
  spec.embedding_dropout = config.probability("embedding_dropout", 0);
  spec.mlp_dropout = config.probability("mlp_dropout", 0);
  spec.classifier_dropout = config.probability("classifier_dropout", 0);
  spec.classifier_bias = config.flag("classifier_bias", false);
  spec.classifier_activation = config.activation("classifier_activation", "gelu");
  spec.pools_by_mean = pools_by_mean(config);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.num_labels = config.num_labels(/*list_default=*/true);
  config.only_flag("sparse_prediction", false);  // how many labels are not -100 decides the sizes
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  if (spec.hidden_size / spec.num_attention_heads % 2 != 0) {
    throw config.json().error("hidden_size", "gives a head of " +
                                                 std::to_string(spec.hidden_size / spec.num_attention_heads) +
                                                 "; accepted: an even one (rotary positions turn pairs)");
  }
  if (const auto scaling = config.json().nullable_object("rope_scaling")) check_rope(*scaling);
  if (const auto parameters = config.json().nullable_object("rope_parameters")) {
    for (const std::string_view type : {"full_attention", "sliding_attention"}) {
      if (const auto rope = parameters->nullable_object(type)) check_rope(*rope);
    }
  }
  config.check_parameter_count([&] {
    const std::int64_t layer = layer_parameters(spec.hidden_size, spec.intermediate_size, 3);
    return checked_add(checked_multiply(layer, spec.num_hidden_layers),
                       checked_multiply(2 * spec.vocab_size + spec.num_labels, spec.hidden_size));
  });
  return spec;
}

}  // namespace

const Family kModernBert = {
    .model_type = "modernbert",
    .kind = FamilyKind::kEncoder,
    .read = modernbert,
    .build = build_modernbert,
    .size_keys = kEncoderKeys,
    .measured = kEncoderTasks,
    .answers_questions = true,
};

}  // namespace memcalc::family
