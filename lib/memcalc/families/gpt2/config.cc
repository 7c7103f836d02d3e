// config.json of GPT-2, as transformers 5.17 reads it: models/gpt2.
#include "memcalc/families/gpt2/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture gpt2(HfReader& config) {
  Gpt2Spec spec;
  spec.vocab_size = config.size({"vocab_size"}, 50257);
  spec.n_positions = config.size({"n_positions", "max_position_embeddings"}, 1024);
  spec.n_embd = config.size({"n_embd", "hidden_size"}, 768);
  spec.n_layer = config.size({"n_layer", "num_hidden_layers"}, 12, kLayerRange);
  spec.n_head = config.size({"n_head", "num_attention_heads"}, 12);
  spec.n_inner = config.nullable_size("n_inner").value_or(4 * spec.n_embd);  // GPT2Block
  spec.activation_function = config.activation("activation_function", "gelu_new");
  spec.resid_pdrop = config.probability("resid_pdrop", 0.1);
  spec.embd_pdrop = config.probability("embd_pdrop", 0.1);
  spec.attn_pdrop = config.probability("attn_pdrop", 0.1);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  spec.num_labels = config.num_labels(/*list_default=*/false);
  config.divides("n_head", spec.n_head, "n_embd", spec.n_embd);
  config.only_flag("scale_attn_weights", true);
  config.only_flag("scale_attn_by_inverse_layer_idx", false);
  config.only_flag("reorder_and_upcast_attn", false);
  config.only_flag("add_cross_attention", false);
  config.check_parameter_count([&] {
    const std::int64_t layer = layer_parameters(spec.n_embd, spec.n_inner, 2);
    const std::int64_t rows = 2 * spec.vocab_size + spec.n_positions + spec.num_labels;
    return checked_add(checked_multiply(layer, spec.n_layer), checked_multiply(rows, spec.n_embd));
  });
  return spec;
}

}  // namespace

const Family kGpt2 = {
    .model_type = "gpt2",
    .kind = FamilyKind::kDecoder,
    .read = gpt2,
    .build = build_gpt2,
    .size_keys = kGpt2Keys,
    .measured = kCausalLmAndClassifier,
    .has_own_classifier = true,
    .answers_questions = true,
    .instructions_per_operator = 128,
    .cut_cross_entropy = false,
    .to_megatron = gpt2_to_megatron,
};

}  // namespace memcalc::family
