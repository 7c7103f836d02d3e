// config.json of LLaMA and Mistral, as transformers 5.17 reads it: models/llama, models/mistral.
#include "memcalc/families/llama/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

Architecture llama(HfReader& config) {
  LlamaSpec spec;
  read_decoder(config, {.intermediate_size = 11008, .max_position_embeddings = 2048}, spec);
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.mlp_bias = config.flag("mlp_bias", false);
  return spec;
}

Architecture mistral(HfReader& config) {
  LlamaSpec spec;
  read_decoder(config, {.intermediate_size = 14336, .num_key_value_heads = 8, .max_position_embeddings = 131072}, spec);
  read_window(config, spec);
  return spec;
}

}  // namespace

const Family kLlama = {
    .model_type = "llama",
    .kind = FamilyKind::kDecoder,
    .read = llama,
    .build = build_llama,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAndClassifier,
    .tp_plan = kDensePlan,
    .dropout_is_module = false,
    .answers_questions = true,
    .instructions_per_operator = 61,
    .liger = true,
    .sequence_parallel = true,
    .ulysses = true,
    .float8 = true,
    .fp8_layers = true,
    .has_stages = true,
    .to_megatron = llama_to_megatron,
};

const Family kMistral = {
    .model_type = "mistral",
    .kind = FamilyKind::kDecoder,
    .read = mistral,
    .build = build_llama,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAndClassifier,
    .tp_plan = kDensePlan,
    .dropout_is_module = false,
    .answers_questions = true,
    .instructions_per_operator = 64,
    .liger = true,
    .sequence_parallel = true,
    .ulysses = true,
    .float8 = true,
    .fp8_layers = true,
    .has_stages = true,
    .to_megatron = llama_to_megatron,
};

}  // namespace memcalc::family
