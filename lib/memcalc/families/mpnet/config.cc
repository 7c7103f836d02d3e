// config.json of MPNet, as transformers 5.17 reads it: models/mpnet.
#include "memcalc/families/mpnet/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture mpnet(HfReader& config) {
  MpnetSpec spec;
  spec.vocab_size = config.size({"vocab_size"}, 30527);
  spec.hidden_size = config.size({"hidden_size"}, 768);
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, 12, kLayerRange);
  spec.num_attention_heads = config.size({"num_attention_heads"}, 12);
  spec.intermediate_size = config.size({"intermediate_size"}, 3072);
  spec.hidden_act = config.activation("hidden_act", "gelu");
  spec.hidden_dropout_prob = config.probability("hidden_dropout_prob", 0.1);
  spec.attention_probs_dropout_prob = config.probability("attention_probs_dropout_prob", 0.1);
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, 512, {3, kSizeRange.max});
  spec.relative_attention_num_buckets = config.size({"relative_attention_num_buckets"}, 32);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.num_labels = config.num_labels(/*list_default=*/true);
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  config.check_parameter_count([&] {
    const std::int64_t layer = layer_parameters(spec.hidden_size, spec.intermediate_size, 2);
    const std::int64_t rows = spec.vocab_size + spec.max_position_embeddings + spec.relative_attention_num_buckets;
    return checked_add(checked_multiply(layer, spec.num_hidden_layers), checked_multiply(rows, spec.hidden_size));
  });
  return spec;
}

}  // namespace

const Family kMpnet = {
    .model_type = "mpnet",
    .kind = FamilyKind::kEncoder,
    .read = mpnet,
    .build = build_mpnet,
    .size_keys = kEncoderKeys,
    .measured = kEncoderTasks,
    .is_eager = [](const Behaviors&) { return true; },
    .checkpoints = false,
    .answers_questions = true,
};

}  // namespace memcalc::family
