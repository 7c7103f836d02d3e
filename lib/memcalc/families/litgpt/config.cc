
#include <array>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/families/gpt_neox/spec.h"
#include "memcalc/families/litgpt/spec.h"
#include "memcalc/families/llama/spec.h"
#include "memcalc/families/phi/spec.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/lit_config.h"

namespace memcalc {
namespace {

/// lit_gpt/config.py, Config: what its file always has.
struct LitConfig {
  std::int64_t n_layer, n_head, n_embd, n_query_groups, head_size, intermediate_size, vocab_size, block_size;
  std::int64_t rope_elements;
  bool bias, lm_head_bias, parallel_residual, shared_attention_norm, rms_norm, gated_mlp;
};

LitConfig read(const JsonObject& json) {
  LitConfig c{};
  c.n_layer = json.required_int("n_layer", kLayerRange);
  c.n_head = json.required_int("n_head", kSizeRange);
  c.n_embd = json.required_int("n_embd", kSizeRange);
  c.n_query_groups = json.nullable_int("n_query_groups", kSizeRange).value_or(c.n_head);
  c.intermediate_size = json.nullable_int("intermediate_size", kSizeRange).value_or(checked_multiply(4, c.n_embd));
  c.vocab_size = json.required_int("padded_vocab_size", kSizeRange);
  c.block_size = json.required_int("block_size", kSizeRange);
  c.bias = json.required_bool("bias");
  c.lm_head_bias = json.optional_bool("lm_head_bias").value_or(false);
  c.parallel_residual = json.required_bool("parallel_residual");
  c.shared_attention_norm = json.required_bool("shared_attention_norm");
  constexpr std::array<std::string_view, 2> kNorms = {"LayerNorm", "RMSNorm"};
  constexpr std::array<std::string_view, 2> kMlps = {"GptNeoxMLP", "LLaMAMLP"};
  c.rms_norm = json.required_choice("_norm_class", kNorms) == kNorms[1];
  c.gated_mlp = json.required_choice("_mlp_class", kMlps) == kMlps[1];
  if (c.n_embd % c.n_head != 0) throw json.error("n_head", "n_embd is no multiple of it");
  if (c.n_head % c.n_query_groups != 0) throw json.error("n_query_groups", "n_head is no multiple of it");
  c.head_size = c.n_embd / c.n_head;
  const double part = json.required_double("rotary_percentage", {0, 1});
  c.rope_elements = static_cast<std::int64_t>(part * static_cast<double>(c.head_size));
  return c;
}

void fill(RotaryDecoderSpec& spec, const LitConfig& c, const char* activation) {
  spec.vocab_size = c.vocab_size;
  spec.hidden_size = c.n_embd;
  spec.num_hidden_layers = c.n_layer;
  spec.num_attention_heads = c.n_head;
  spec.num_key_value_heads = c.n_query_groups;
  spec.head_dim = c.head_size;
  spec.intermediate_size = c.intermediate_size;
  spec.max_position_embeddings = c.block_size;
  spec.hidden_act = activation;
  spec.attention_bias = c.bias;
}

Architecture architecture_of(const LitConfig& c, const JsonObject& json) {
  const bool llama = c.rms_norm && c.gated_mlp && !c.parallel_residual && !c.shared_attention_norm;
  const bool phi = !c.rms_norm && !c.gated_mlp && c.parallel_residual && c.shared_attention_norm;
  const bool neox = !c.rms_norm && !c.gated_mlp && !c.shared_attention_norm && c.n_query_groups == c.n_head;
  if (llama && c.rope_elements == c.head_size && !c.lm_head_bias) {
    LlamaSpec spec;
    fill(spec, c, "silu");
    spec.mlp_bias = c.bias;
    return spec;
  }
  if (phi && c.bias && c.lm_head_bias) {
    PhiSpec spec;
    fill(spec, c, "gelu");
    spec.rotary_dim = c.rope_elements;
    return spec;
  }
  if (neox && c.bias && !c.lm_head_bias) {
    GptNeoxSpec spec;
    spec.vocab_size = c.vocab_size;
    spec.hidden_size = c.n_embd;
    spec.num_hidden_layers = c.n_layer;
    spec.num_attention_heads = c.n_head;
    spec.intermediate_size = c.intermediate_size;
    spec.max_position_embeddings = c.block_size;
    spec.rotary_dim = c.rope_elements;
    spec.hidden_act = "gelu";
    spec.use_parallel_residual = c.parallel_residual;
    return spec;
  }
  throw json.error("_norm_class",
                   "this mixture of norms, MLPs, residuals and biases is not modelled; modelled: those of LLaMA, "
                   "GPT-NeoX (Pythia, StableLM alpha) and Phi-1.5",
                   ErrorCode::kUnsupported);
}

bool is_litgpt(const ModelSpec& model) { return model.model_type == kLitGptType; }

}  // namespace

bool is_lit_config(const JsonObject& json) { return !json.has("model_type") && json.has("_mlp_class"); }

ModelSpec model_from_lit_config(const JsonObject& json, std::string name) {
  const LitConfig config = read(json);
  HfReader reader(json, std::string(kLitGptType));
  reader.check_parameter_count([&] {
    const std::int64_t layer = layer_parameters(config.n_embd, config.intermediate_size, 3);
    return checked_add(checked_multiply(layer, config.n_layer), checked_multiply(2 * config.vocab_size, config.n_embd));
  });
  ModelSpec model;
  model.name = std::move(name);
  model.model_type = kLitGptType;
  model.architecture = architecture_of(config, json);
  model.assumptions = {
      "LitGPT's own modules and loss, as of its commit 0cc02afa (October 2023); compared with the figures of its "
      "tutorial (docs/published-litgpt.md)"};
  return model;
}

RunOptions with_litgpt_defaults(const ModelSpec& model, RunOptions options) {
  if (!is_litgpt(model)) return options;
  if (options.inference) return options;  // rule litgpt-trains
  options.loop = options.loop.value_or(Loop::kBare);
  if (options.lora_rank) {
    options.lora_in_base_dtype = true;
    if (options.lora_targets.empty()) options.lora_targets = {"query", "value"};
  }
  const Quantization kind = options.quantization.value_or(Quantization::kNone);
  if (kind != Quantization::kNone) {
    options.packs_head = true;
    options.prepares_for_kbit = options.prepares_for_kbit.value_or(false);
  }
  return options;
}

namespace family {

const Family kLitGpt = {
    .model_type = kLitGptType,
    .build = build_litgpt,
    .dropout_is_module = false,
    .cut_cross_entropy = false,
};

}  // namespace family

}  // namespace memcalc
