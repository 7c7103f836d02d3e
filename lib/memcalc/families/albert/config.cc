// config.json of ALBERT, as transformers 5.17 reads it: models/albert.
#include "memcalc/families/albert/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture albert(HfReader& config) {
  AlbertSpec spec;
  spec.vocab_size = config.size({"vocab_size"}, 30000);
  spec.embedding_size = config.size({"embedding_size"}, 128);
  spec.hidden_size = config.size({"hidden_size"}, 4096);
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, 12, kLayerRange);
  spec.num_hidden_groups = config.size({"num_hidden_groups"}, 1, kLayerRange);
  spec.inner_group_num = config.size({"inner_group_num"}, 1, kLayerRange);
  spec.num_attention_heads = config.size({"num_attention_heads"}, 64);
  spec.intermediate_size = config.size({"intermediate_size"}, 16384);
  spec.hidden_act = config.activation("hidden_act", "gelu_new");
  spec.hidden_dropout_prob = config.probability("hidden_dropout_prob", 0);
  spec.attention_probs_dropout_prob = config.probability("attention_probs_dropout_prob", 0);
  spec.classifier_dropout_prob = config.probability("classifier_dropout_prob", 0.1);
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, 512);
  spec.type_vocab_size = config.size({"type_vocab_size"}, 2);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.num_labels = config.num_labels(/*list_default=*/true);
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  if (config.json().nullable_int("chunk_size_feed_forward", {0, kSizeRange.max}).value_or(0) != 0) {
    config.only_absent("chunk_size_feed_forward");
  }
  config.check_parameter_count([&] {
    const std::int64_t layer = layer_parameters(spec.hidden_size, spec.intermediate_size, 2);
    const std::int64_t layers = checked_multiply(spec.num_hidden_groups, spec.inner_group_num);
    const std::int64_t rows = spec.vocab_size + spec.max_position_embeddings + spec.type_vocab_size + spec.hidden_size;
    return checked_add(checked_multiply(layer, layers), checked_multiply(rows, spec.embedding_size));
  });
  return spec;
}

}  // namespace

const Family kAlbert = {
    .model_type = "albert",
    .kind = FamilyKind::kEncoder,
    .read = albert,
    .build = build_albert,
    .size_keys = kEncoderKeys,
    .measured = kClassifierAndMaskedLm,
    .checkpoints = false,
    .repeats_layers = true,
    .answers_questions = true,
    .compiled_whole_alone = true,
};

}  // namespace memcalc::family
