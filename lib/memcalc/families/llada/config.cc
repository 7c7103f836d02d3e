// config.json of LLaDA, as its own configuration_llada.py reads it (GSAI-ML/LLaDA-8B-Base; the copy that dllm trains,
// github.com/ZHZisZZ/dllm at ca176752, read 2026-11-29).
#include <optional>

#include "memcalc/families/llada/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

/// A choice of the class's that has one accepted value here.
void only_word(const HfReader& config, std::string_view key, std::string_view fallback, std::string_view accepted) {
  const std::string word = config.json().nullable_string(key).value_or(std::string(fallback));
  if (word == accepted) return;
  throw config.json().error(key, "'" + word + "' is not modelled; accepted: " + std::string(accepted),
                            ErrorCode::kUnsupported);
}

Architecture llada(HfReader& config) {
  const JsonObject& json = config.json();
  // LLaDA-MoE's files say llada, too.
  for (const std::string_view key : {"num_experts", "expert_intermediate_size", "moe_layer_freq"}) {
    if (!json.has(key) || json.is_null(key)) continue;
    throw json.error(key,
                     "LLaDA's mixtures of experts (llada_moe, llada2_moe) are not modelled; accepted: the dense one",
                     ErrorCode::kUnsupported);
  }
  only_word(config, "block_type", "sequential", "llama");
  only_word(config, "layer_norm_type", "default", "rms");
  only_word(config, "activation_type", "swiglu", "silu");
  config.only_flag("alibi", false);
  config.only_flag("attention_layer_norm", false);
  config.only_flag("flash_attention", false);  // the flash_attn package
  if (!config.flag("rope", false)) {
    throw json.error("rope", "LLaDA's class asserts it; accepted: true", ErrorCode::kInput);
  }
  LladaSpec spec;
  spec.hidden_size = config.size({"d_model"}, 768);
  spec.num_hidden_layers = config.size({"n_layers"}, 12, kLayerRange);
  spec.num_attention_heads = config.size({"n_heads"}, 12);
  config.divides("n_heads", spec.num_attention_heads, "d_model", spec.hidden_size);
  spec.head_dim = spec.hidden_size / spec.num_attention_heads;
  const bool shares_keys =
      !json.is_null("multi_query_attention") && json.optional_bool("multi_query_attention").value_or(false);
  spec.num_key_value_heads = shares_keys ? 1 : config.nullable_size("n_kv_heads").value_or(spec.num_attention_heads);
  config.divides("n_kv_heads", spec.num_key_value_heads, "n_heads", spec.num_attention_heads);
  const std::optional<std::int64_t> width = config.nullable_size("mlp_hidden_size");
  spec.intermediate_size = width ? *width : checked_multiply(config.size({"mlp_ratio"}, 4), spec.hidden_size);
  spec.vocab_size =
      json.is_null("embedding_size") ? config.size({"vocab_size"}, 50257) : config.size({"embedding_size"}, 50304);
  spec.max_position_embeddings = config.size({"max_sequence_length"}, 1024);
  spec.hidden_act = "silu";
  spec.attention_dropout = config.probability("attention_dropout", 0.1);
  spec.residual_dropout = config.probability("residual_dropout", 0.1);
  spec.embedding_dropout = config.probability("embedding_dropout", 0.1);
  spec.bias = config.flag("include_bias", false);
  spec.qkv_bias = spec.bias || config.flag("include_qkv_bias", false);
  const bool inherits = json.is_null("bias_for_layer_norm");
  if (!inherits && json.optional_bool("bias_for_layer_norm").value_or(spec.bias) != spec.bias) {
    throw json.error("bias_for_layer_norm", "other biases than include_bias says are not modelled",
                     ErrorCode::kUnsupported);
  }
  spec.rotates_in_float32 = config.flag("rope_full_precision", true);
  spec.scales_embedding = config.flag("input_emb_norm", false);
  spec.scales_logits = config.flag("scale_logits", false);
  spec.tie_word_embeddings = config.flag("weight_tying", true);
  if (spec.head_dim % 2 != 0) {
    throw json.error("d_model", "gives a head of " + std::to_string(spec.head_dim) +
                                    "; accepted: an even one (rotary positions turn pairs)");
  }
  config.check_parameter_count([&] {
    const std::int64_t layer = layer_parameters(spec.hidden_size, spec.intermediate_size, 3);
    return checked_add(checked_multiply(layer, spec.num_hidden_layers),
                       checked_multiply(2 * spec.vocab_size, spec.hidden_size));
  });
  config.assume(
      "its class is remote code: it computes no loss, which here is the cross entropy of all logits at once; trainers "
      "weigh it by token (some make one more copy of the logits for that)");
  return spec;
}

}  // namespace

const Family kLlada = {
    .model_type = "llada",
    .kind = FamilyKind::kEncoder,
    .read = llada,
    .build = build_llada,
    .size_keys = {{{"n_layers", ""},
                   {"d_model", ""},
                   {"n_heads", ""},
                   {"n_kv_heads", ""},
                   {},
                   {"mlp_hidden_size", ""},
                   {"embedding_size", ""},
                   {"max_sequence_length", ""},
                   {"weight_tying", ""},
                   {}}},
    .tasks = kMaskedLmAlone,
    .measured = kMaskedLmAlone,
    .compiled_whole_alone = true,
    .preset = R"("block_type": "llama", "layer_norm_type": "rms", "activation_type": "silu", "rope": true)",
    .told = "blocks as in LLaDA-8B: LLaMA's, with RMS norms and rotary positions",
};

}  // namespace memcalc::family
