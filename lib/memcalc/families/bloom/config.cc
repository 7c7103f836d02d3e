// config.json of BLOOM, as transformers 5.17 reads it: models/bloom.
#include "memcalc/families/bloom/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture bloom(HfReader& config) {
  BloomSpec spec;
  spec.vocab_size = config.size({"vocab_size"}, 250880);
  // The hub's files of the first models say n_embed.
  spec.hidden_size = config.nullable_size("n_embed").value_or(0);
  if (spec.hidden_size == 0) spec.hidden_size = config.size({"hidden_size"}, 64);
  spec.n_layer = config.size({"n_layer", "num_hidden_layers"}, 2, kLayerRange);
  spec.n_head = config.size({"n_head", "num_attention_heads"}, 8);
  spec.hidden_dropout = config.probability("hidden_dropout", 0);
  spec.attention_dropout = config.probability("attention_dropout", 0);
  spec.apply_residual_connection_post_layernorm = config.flag("apply_residual_connection_post_layernorm", false);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.num_labels = config.num_labels(/*list_default=*/false);
  config.only_flag("slow_but_exact", false);
  config.divides("n_head", spec.n_head, "hidden_size", spec.hidden_size);
  config.check_parameter_count([&] {
    const std::int64_t layer = checked_multiply(12, linear_parameters(spec.hidden_size, spec.hidden_size));
    const std::int64_t rows = 2 * spec.vocab_size + spec.num_labels;
    return checked_add(checked_multiply(layer, spec.n_layer), checked_multiply(rows, spec.hidden_size));
  });
  return spec;
}

constexpr SizeKeysOfFamily kBloomKeys = {{{"n_layer", ""},
                                          {"hidden_size", ""},
                                          {"n_head", ""},
                                          {},
                                          {},
                                          {},
                                          {"vocab_size", ""},
                                          {},
                                          {"tie_word_embeddings", ""}}};

}  // namespace

const Family kBloom = {
    .model_type = "bloom",
    .kind = FamilyKind::kDecoder,
    .read = bloom,
    .build = build_bloom,
    .size_keys = kBloomKeys,
    .measured = kCausalLmAlone,
    .is_eager = [](const Behaviors&) { return true; },
    .has_own_classifier = true,
    .answers_questions = true,
    .instructions_per_operator = 80,
    .cut_cross_entropy = false,
};

}  // namespace memcalc::family
