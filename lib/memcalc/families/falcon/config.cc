// config.json of Falcon, as transformers 5.17 reads it: models/falcon.
#include <string>

#include "memcalc/families/falcon/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

/// FalconDecoderLayer.__init__, and its forward, which does not use all that it may make.
FalconNorms norms_of(HfReader& config, bool new_architecture) {
  const bool parallel = config.flag("parallel_attn", true);
  const std::int64_t norms = config.nullable_size("num_ln_in_parallel_attn").value_or(new_architecture ? 2 : 1);
  if (new_architecture && !parallel) {
    throw config.json().error("parallel_attn", "false beside new_decoder_architecture; accepted: true");
  }
  if (!parallel) return FalconNorms::kSequential;
  if (norms == 1) return FalconNorms::kShared;
  if (norms == 2 && new_architecture) return FalconNorms::kParallel;
  throw config.json().error("num_ln_in_parallel_attn",
                            "found " + std::to_string(norms) + "; accepted: 1" + (new_architecture ? " or 2" : ""));
}

Architecture falcon(HfReader& config) {
  FalconSpec spec;
  spec.vocab_size = config.size({"vocab_size"}, 65024);
  spec.hidden_size = config.nullable_size("n_embed").value_or(0);
  if (spec.hidden_size == 0) spec.hidden_size = config.size({"hidden_size"}, 4544);
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, 32, kLayerRange);
  spec.num_attention_heads = config.size({"num_attention_heads"}, 71);
  spec.num_kv_heads = config.nullable_size("num_kv_heads").value_or(spec.num_attention_heads);
  spec.ffn_hidden_size = config.nullable_size("ffn_hidden_size").value_or(4 * spec.hidden_size);
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, 2048);
  spec.activation = config.activation("activation", "gelu");
  spec.hidden_dropout = config.probability("hidden_dropout", 0);
  spec.attention_dropout = config.probability("attention_dropout", 0);
  spec.alibi = config.flag("alibi", false);
  spec.new_decoder_architecture = config.flag("new_decoder_architecture", false);
  spec.multi_query = config.flag("multi_query", true);
  spec.bias = config.flag("bias", false);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.num_labels = config.num_labels(/*list_default=*/false);
  spec.norms = norms_of(config, spec.new_decoder_architecture);
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  if (spec.new_decoder_architecture) {
    config.divides("num_kv_heads", spec.num_kv_heads, "num_attention_heads", spec.num_attention_heads);
  }
  if (spec.head_dim() % 2 != 0) {
    throw config.json().error("hidden_size", "gives a head of " + std::to_string(spec.head_dim()) +
                                                 "; accepted: an even one (rotary positions turn pairs)");
  }
  config.check_parameter_count([&] {
    const std::int64_t layer = layer_parameters(spec.hidden_size, spec.ffn_hidden_size, 2);
    const std::int64_t rows = 2 * spec.vocab_size + spec.num_labels;
    return checked_add(checked_multiply(layer, spec.num_hidden_layers), checked_multiply(rows, spec.hidden_size));
  });
  return spec;
}

// Without --kv-heads: num_kv_heads says nothing where multi_query is true, which is the class's default.
constexpr SizeKeysOfFamily kFalconKeys = with(kEncoderKeys, 5, {"ffn_hidden_size", ""});

}  // namespace

const Family kFalcon = {
    .model_type = "falcon",
    .kind = FamilyKind::kDecoder,
    .read = falcon,
    .build = build_falcon,
    .size_keys = kFalconKeys,
    .measured = kCausalLmAlone,
    .has_own_classifier = true,
    .answers_questions = true,
    .instructions_per_operator = 61,
    .cut_cross_entropy = false,
};

}  // namespace memcalc::family
