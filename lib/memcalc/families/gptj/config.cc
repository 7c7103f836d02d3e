// config.json of GPT-J, as transformers 5.17 reads it: models/gptj.
#include "memcalc/families/gptj/spec.h"

#include <string>

#include "memcalc/families/gpt2/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture gptj(HfReader& config) {
  GptjSpec spec;
  spec.vocab_size = config.size({"vocab_size"}, 50400);
  spec.n_positions = config.size({"n_positions", "max_position_embeddings"}, 2048);
  spec.n_embd = config.size({"n_embd", "hidden_size"}, 4096);
  spec.n_layer = config.size({"n_layer", "num_hidden_layers"}, 28, kLayerRange);
  spec.n_head = config.size({"n_head", "num_attention_heads"}, 16);
  spec.n_inner = config.nullable_size("n_inner").value_or(4 * spec.n_embd);  // GPTJBlock
  spec.activation_function = config.activation("activation_function", "gelu_new");
  spec.resid_pdrop = config.probability("resid_pdrop", 0);
  spec.embd_pdrop = config.probability("embd_pdrop", 0);
  spec.attn_pdrop = config.probability("attn_pdrop", 0);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", false);
  spec.num_labels = config.num_labels(/*list_default=*/false);
  config.divides("n_head", spec.n_head, "n_embd", spec.n_embd);
  const std::int64_t head_dim = spec.n_embd / spec.n_head;
  spec.rotary_dim = config.size({"rotary_dim"}, 64);
  if (spec.rotary_dim % 2 != 0 || spec.rotary_dim > head_dim) {
    throw config.json().error("rotary_dim", "found " + std::to_string(spec.rotary_dim) +
                                                "; accepted: an even number up to the width of a head (" +
                                                std::to_string(head_dim) + ")");
  }
  config.check_parameter_count([&] {
    const std::int64_t layer = layer_parameters(spec.n_embd, spec.n_inner, 2);
    const std::int64_t rows = 2 * spec.vocab_size + spec.num_labels;
    return checked_add(checked_multiply(layer, spec.n_layer), checked_multiply(rows, spec.n_embd));
  });
  return spec;
}

}  // namespace

const Family kGptj = {
    .model_type = "gptj",
    .kind = FamilyKind::kDecoder,
    .read = gptj,
    .build = build_gptj,
    .size_keys = kGpt2Keys,
    .measured = kCausalLmAlone,
    .is_eager = [](const Behaviors&) { return true; },
    .has_own_classifier = true,
    .answers_questions = true,
    .instructions_per_operator = 58,
    .cut_cross_entropy = false,
};

}  // namespace memcalc::family
