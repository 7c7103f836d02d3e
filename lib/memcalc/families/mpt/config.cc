// config.json of MPT, as transformers 5.17 reads it: models/mpt.
#include "memcalc/families/mpt/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture mpt(HfReader& config) {
  MptSpec spec;
  spec.vocab_size = config.size({"vocab_size"}, 50368);
  spec.d_model = config.size({"d_model", "hidden_size"}, 2048);
  spec.n_layers = config.size({"n_layers", "num_hidden_layers"}, 24, kLayerRange);
  spec.n_heads = config.size({"n_heads", "num_attention_heads"}, 16);
  spec.max_seq_len = config.size({"max_seq_len"}, 2048);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.num_labels = config.num_labels(/*list_default=*/false);
  // expansion_ratio, resid_pdrop, emb_pdrop, learned_pos_emb, alibi and logit_scale: the class does not read them.
  if (const std::optional<JsonObject> attention = config.json().nullable_object("attn_config")) {
    spec.attn_pdrop = attention->optional_double("attn_pdrop", {0, 1}).value_or(0);
    spec.clips_qkv = attention->nullable_double("clip_qkv", {0, 1e9}).value_or(0) > 0;
  }
  config.divides("n_heads", spec.n_heads, "d_model", spec.d_model);
  config.check_parameter_count([&] {
    const std::int64_t layer = checked_multiply(12, linear_parameters(spec.d_model, spec.d_model));
    const std::int64_t rows = 2 * spec.vocab_size + spec.num_labels;
    return checked_add(checked_multiply(layer, spec.n_layers), checked_multiply(rows, spec.d_model));
  });
  return spec;
}

constexpr SizeKeysOfFamily kMptKeys = {{{"n_layers", ""},
                                        {"d_model", ""},
                                        {"n_heads", ""},
                                        {},
                                        {},
                                        {},
                                        {"vocab_size", ""},
                                        {"max_seq_len", ""},
                                        {"tie_word_embeddings", ""}}};

}  // namespace

const Family kMpt = {
    .model_type = "mpt",
    .kind = FamilyKind::kDecoder,
    .read = mpt,
    .build = build_mpt,
    .size_keys = kMptKeys,
    .measured = kCausalLmAlone,
    .special_tokens = {.begins = false, .ends = false},
    .is_eager = [](const Behaviors&) { return true; },
    .use_cache_by_default = false,
    .has_own_classifier = true,
    .answers_questions = true,
    .instructions_per_operator = 105,
    .cut_cross_entropy = false,
};

}  // namespace memcalc::family
