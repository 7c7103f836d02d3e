// config.json of GPT-NeoX and Pythia, as transformers 5.17 reads it: models/gpt_neox.
#include "memcalc/families/gpt_neox/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture gpt_neox(HfReader& config) {
  GptNeoxSpec spec;
  spec.vocab_size = config.size({"vocab_size"}, 50432);
  spec.hidden_size = config.size({"hidden_size"}, 6144);
  spec.num_hidden_layers = config.size({"num_hidden_layers"}, 44, kLayerRange);
  spec.num_attention_heads = config.size({"num_attention_heads"}, 64);
  spec.intermediate_size = config.size({"intermediate_size"}, 24576);
  spec.hidden_act = config.activation("hidden_act", "gelu");
  spec.attention_dropout = config.probability("attention_dropout", 0);
  spec.hidden_dropout = config.probability("hidden_dropout", 0);
  spec.max_position_embeddings = config.size({"max_position_embeddings"}, 2048);
  spec.tie_word_embeddings = config.flag("tie_word_embeddings", false);
  spec.use_parallel_residual = config.flag("use_parallel_residual", true);
  spec.attention_bias = config.flag("attention_bias", true);
  spec.num_labels = config.num_labels(/*list_default=*/false);
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  spec.rotary_dim = rotary_dim(config, "rotary_pct", 0.25, spec.hidden_size / spec.num_attention_heads);
  config.check_parameter_count([&] {
    const std::int64_t layer = layer_parameters(spec.hidden_size, spec.intermediate_size, 2);
    return checked_add(checked_multiply(layer, spec.num_hidden_layers),
                       checked_multiply(2 * spec.vocab_size + spec.num_labels, spec.hidden_size));
  });
  return spec;
}

constexpr Renaming kGptNeoxRenamings[] = {{"embed_out.", "lm_head.", /*starts_name=*/true}};
constexpr std::string_view kGptNeoxPlan[] = {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h", "lm_head"};

}  // namespace

const Family kGptNeox = {
    .model_type = "gpt_neox",
    .kind = FamilyKind::kDecoder,
    .read = gpt_neox,
    .build = build_gpt_neox,
    .size_keys = kEncoderKeys,
    .measured = kCausalLmAndClassifier,
    .renamings = kGptNeoxRenamings,
    .loads_by_checkpoint_names = true,
    .tp_plan = kGptNeoxPlan,
    .answers_questions = true,
    .instructions_per_operator = 94,
    .cut_cross_entropy = false,
    .fp8_layers = true,
};

}  // namespace memcalc::family
