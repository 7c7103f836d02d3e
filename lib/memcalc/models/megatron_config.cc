#include "memcalc/models/megatron_config.h"

#include <string>
#include <variant>

#include "memcalc/base/error.h"
#include "memcalc/spec/built_rules.h"

namespace memcalc {

namespace {

/// megatron/training/tokenizer, _vocab_size_with_padding.
std::int64_t padded_vocabulary(std::int64_t size, const MegatronLayout& options, const Parallel& parallel) {
  return round_up(size, checked_multiply(options.vocabulary_multiple, parallel.tensor));
}

template <typename Spec>
void take_rotary(MegatronConfig& config, const Spec& spec) {
  config.num_layers = spec.num_hidden_layers;
  config.hidden_size = spec.hidden_size;
  config.ffn_hidden_size = spec.intermediate_size;
  config.num_attention_heads = spec.num_attention_heads;
  config.num_query_groups = spec.num_key_value_heads;
  config.kv_channels = spec.head_dim;
  config.padded_vocab_size = spec.vocab_size;
  config.max_position_embeddings = spec.max_position_embeddings;
  config.shares_embeddings = spec.tie_word_embeddings;
  config.attention_dropout = spec.attention_dropout;
  config.qkv_bias = spec.attention_bias;
}

template <typename Spec>
void take_experts(MegatronConfig& config, const Spec& spec, std::int64_t shared, std::vector<bool> dense) {
  config.moe = MegatronExperts{spec.experts, shared, std::move(dense)};
}

void take_deepseek(MegatronConfig& config, const DeepseekSpec& spec) {
  take_rotary(config, spec);
  config.num_query_groups = spec.num_attention_heads;
  config.qk_layernorm = true;
  config.latent = spec.latent;
  std::vector<bool> dense(static_cast<std::size_t>(spec.num_hidden_layers), false);
  for (std::size_t i = 0; i < dense.size() && static_cast<std::int64_t>(i) < spec.first_k_dense_replace; ++i) {
    dense[i] = true;
  }
  take_experts(config, spec, checked_multiply(spec.n_shared_experts, spec.experts.intermediate_size), std::move(dense));
}

/// Megatron-core's GPT model in the shape of each family.
struct Take {
  MegatronConfig& config;
  const std::string& name;

  void operator()(const Gpt2Spec& spec) const {
    config.num_layers = spec.n_layer;
    config.hidden_size = spec.n_embd;
    config.ffn_hidden_size = spec.n_inner;
    config.num_attention_heads = config.num_query_groups = spec.n_head;
    config.kv_channels = spec.n_embd / spec.n_head;
    config.padded_vocab_size = spec.vocab_size;
    config.max_position_embeddings = spec.n_positions;
    config.swiglu = config.rms_norm = config.rotary = false;
    config.bias_linear = true;
    config.shares_embeddings = spec.tie_word_embeddings;
    config.hidden_dropout = spec.resid_pdrop;
    config.attention_dropout = spec.attn_pdrop;
  }
  void operator()(const LlamaSpec& spec) const { take_rotary(config, spec); }
  void operator()(const Qwen2Spec& spec) const { take_rotary(config, spec); }
  void operator()(const Qwen3Spec& spec) const {
    take_rotary(config, spec);
    config.qk_layernorm = true;
  }
  void operator()(const MixtralSpec& spec) const {
    take_rotary(config, spec);
    take_experts(config, spec, 0, std::vector<bool>(static_cast<std::size_t>(spec.num_hidden_layers), false));
  }
  void operator()(const Qwen3MoeSpec& spec) const {
    take_rotary(config, spec);
    config.qk_layernorm = true;
    take_experts(config, spec, 0, spec.dense_layers);
  }
  void operator()(const DeepseekV2Spec& spec) const { take_deepseek(config, spec); }
  void operator()(const DeepseekV3Spec& spec) const { take_deepseek(config, spec); }
  template <typename Other>
  void operator()(const Other& /*spec*/) const {
    throw refusal(rules::kMegatronModels, {name});
  }
};

}  // namespace

MegatronConfig megatron_config(const ModelSpec& model, const RunSpec& run) {
  const MegatronLayout& options = run.parallel.megatron();
  MegatronConfig config;
  config.parallel = run.parallel;
  config.options = options;
  std::visit(Take{config, model.name}, model.architecture);
  config.padded_vocab_size = padded_vocabulary(config.padded_vocab_size, options, run.parallel);
  config.micro_batch_size = run.batch_size;
  config.sequence_length = run.sequence_length;
  config.expert_tensor = options.expert_tensor > 0 ? options.expert_tensor : run.parallel.tensor;
  config.checkpointing = run.checkpointing();
  config.bias_linear = options.bias_linear.value_or(config.bias_linear);
  config.swiglu = options.swiglu.value_or(config.swiglu);
  config.rms_norm = options.rms_norm.value_or(config.rms_norm);
  config.rotary = options.rotary.value_or(config.rotary);
  if (options.squared_relu) config.swiglu = false;
  config.shares_embeddings = options.shares_embeddings.value_or(config.shares_embeddings);
  config.hidden_dropout = options.hidden_dropout.value_or(config.hidden_dropout);
  config.attention_dropout = options.attention_dropout.value_or(config.attention_dropout);
  if (run.dropout) config.hidden_dropout = config.attention_dropout = *run.dropout;
  return config;
}

std::vector<MegatronChunk> chunks_of_stage(const MegatronConfig& config, std::int64_t stage) {
  const std::int64_t stages = config.parallel.pipeline;
  const std::int64_t virtual_stages = config.parallel.virtual_stages;
  const std::int64_t first = config.options.first_stage_layers, last = config.options.last_stage_layers;
  // transformer_layer.py, get_transformer_layer_offset: what the first and last stage are not told to hold is spread
  // evenly over the others.
  const std::int64_t even_stages = stages - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0);
  // get_num_layers_to_build: the embedding and the loss take a layer's place where they are counted.
  const std::int64_t embedding = config.options.counts_embedding ? 1 : 0, loss = config.options.counts_loss ? 1 : 0;
  const std::int64_t places = config.num_layers + embedding + loss - first - last;
  const std::int64_t even = even_stages > 0 ? places / (even_stages * virtual_stages) : 0;
  const std::int64_t all = stages * virtual_stages;
  const auto layers_of = [&](std::int64_t chunk) {
    if (chunk == 0 && first > 0) return first;
    if (chunk == all - 1 && last > 0) return last;
    return even - (chunk == 0 ? embedding : 0) - (chunk == all - 1 ? loss : 0);
  };
  std::vector<MegatronChunk> chunks;
  std::int64_t offset = 0;
  for (std::int64_t chunk = 0; chunk < all; ++chunk) {
    const std::int64_t layers = layers_of(chunk);
    if (chunk % stages == stage) chunks.push_back({offset, layers, chunk == 0, chunk == all - 1});
    offset += layers;
  }
  return chunks;
}

}  // namespace memcalc
