// MIRRORS(megatron, "core/transformer/transformer_layer.py", "0.14.0")
#include "memcalc/models/megatron_config.h"

#include <algorithm>

#include "memcalc/base/error.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/family.h"

namespace memcalc {

namespace {

/// megatron/training/tokenizer, _vocab_size_with_padding.
std::int64_t padded_vocabulary(std::int64_t size, const MegatronLayout& options, const Parallel& parallel) {
  return round_up(size, checked_multiply(options.vocabulary_multiple, parallel.tensor));
}

}  // namespace

void take_decoder(MegatronConfig& config, const RotaryDecoderSpec& spec) {
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

MegatronConfig megatron_config(const ModelSpec& model, const RunSpec& run) {
  const MegatronLayout& options = run.parallel.megatron();
  MegatronConfig config;
  config.parallel = run.parallel;
  config.options = options;
  const Family* const family = family_of(model);
  if (family == nullptr || family->to_megatron == nullptr) throw refusal(rules::kMegatronModels, {model.name});
  family->to_megatron(model.architecture, config);
  config.padded_vocab_size = padded_vocabulary(config.padded_vocab_size, options, run.parallel);
  config.micro_batch_size = run.batch_size;
  config.sequence_length = run.sequence_length;
  config.target_length = run.target_sequence_length;
  config.expert_tensor = options.expert_tensor > 0 ? options.expert_tensor : run.parallel.tensor;
  config.checkpointing = run.checkpointing();
  config.bias_linear = options.bias_linear.value_or(config.bias_linear);
  config.swiglu = options.swiglu.value_or(config.swiglu);
  config.rms_norm = options.rms_norm.value_or(config.rms_norm);
  config.rotary = options.rotary.value_or(config.rotary);
  config.has_positions = config.has_positions || options.rotary.has_value();
  if (options.squared_relu) config.swiglu = false;
  if (config.moe && options.shared_expert_width > 0) config.moe->shared_intermediate_size = options.shared_expert_width;
  config.shares_embeddings = options.shares_embeddings.value_or(config.shares_embeddings);
  if (config.decoder_layers > 0) config.head_bias = config.shares_embeddings;  // T5LMHead
  if (options.max_positions > 0) config.max_position_embeddings = options.max_positions;
  // T5's sizes name no longest sequence; arguments.py wants as many positions as tokens.
  if (config.max_position_embeddings == 0)
    config.max_position_embeddings = std::max(config.sequence_length, config.target_length);
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
