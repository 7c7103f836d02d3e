// megatron/core/models/gpt/gpt_model.py, transformer/transformer_{block,layer}.py, transformer/mlp.py (core_r0.14.0).
// MIRRORS(megatron, "core/models/gpt/gpt_model.py", "0.14.0")
// MIRRORS(megatron, "core/transformer/mlp.py", "0.14.0")
// MIRRORS(megatron, "core/transformer/transformer_block.py", "0.14.0")
// MIRRORS(megatron, "core/transformer/transformer_layer.py", "0.14.0")
#include "memcalc/models/megatron_gpt.h"

#include <algorithm>
#include <string>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/checkpoint.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/tensor_parallel.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

constexpr Operator kRotary{"megatron::RotaryEmbedding"}, kBuffer{"buffer"};

/// bias_dropout_add: residual + dropout(x + bias).
Tensor bias_dropout_add(const MegatronConfig& config, const Tensor& x, const Tensor& residual) {
  if (config.hidden_dropout == 0 && !config.bias_linear) return residual + x;
  return fused_bias_dropout_add(x, residual, config.hidden_dropout);
}

}  // namespace

MegatronLinear::MegatronLinear(ModuleBuilder& b, std::string_view name, MegatronMemory& memory, ParallelMode mode,
                               std::int64_t in, std::int64_t out, bool with_bias, bool with_norm, bool rms) {
  const std::int64_t ranks = memory.tensor_parallel;
  layer = {.memory = &memory,
           .mode = mode,
           .in = mode == ParallelMode::kRow ? in / ranks : in,
           .out = mode == ParallelMode::kColumn ? out / ranks : out,
           .bias = with_bias,
           .norm_rms = rms};
  b.scope(name, [&] {
    if (with_norm) norm_weight = b.parameter("layer_norm_weight", {in}, false);
    if (with_norm && !rms) norm_bias = b.parameter("layer_norm_bias", {in}, false);
    weight = b.parameter("weight", {layer.out, layer.in});
    if (with_bias) bias = b.parameter("bias", {layer.out}, false);
    return 0;
  });
}

MegatronNorm::MegatronNorm(ModuleBuilder& b, std::string_view name, MegatronMemory& owner, std::int64_t width,
                           bool is_rms)
    : memory(&owner), rms(is_rms) {
  b.scope(name, [&] {
    weight = b.parameter("weight", {width}, false);
    if (!rms) bias = b.parameter("bias", {width}, false);
    return 0;
  });
}

MegatronMlp::MegatronMlp(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory,
                         std::int64_t ffn_hidden_size, bool with_norm)
    : linear_fc1(b, "linear_fc1", memory, ParallelMode::kColumn, config.hidden_size,
                 (config.swiglu ? 2 : 1) * ffn_hidden_size, config.bias_linear, with_norm, config.rms_norm),
      linear_fc2(b, "linear_fc2", memory, ParallelMode::kRow, ffn_hidden_size, config.hidden_size, config.bias_linear,
                 false, config.rms_norm),
      swiglu(config.swiglu),
      squares_relu(config.options.squared_relu) {}

Tensor MegatronMlp::forward(const Tensor& hidden_states) const {
  Tensor intermediate = linear_fc1(hidden_states);
  if (squares_relu) {
    intermediate = squared_relu(intermediate);
  } else {
    intermediate = swiglu ? fused_swiglu(intermediate) : fused_bias_gelu(intermediate);
  }
  return linear_fc2(intermediate);
}

MegatronTransformerLayer::MegatronTransformerLayer(ModuleBuilder& b, const MegatronConfig& config,
                                                   MegatronMemory& memory, std::int64_t index)
    : config_(config) {
  if (config.latent) input_layernorm_ = MegatronNorm(b, "input_layernorm", memory, config.hidden_size, config.rms_norm);
  const MegatronLayerKind block = config.block(index);
  if (block == MegatronLayerKind::kMamba) {
    self_attention_ = b.scope("mixer", [&] { return build_mamba_mixer(b, config, memory); });
  } else if (block != MegatronLayerKind::kMlp) {
    self_attention_ = b.scope("self_attention", [&] {
      return config.latent ? build_latent_attention(b, config, memory) : build_self_attention(b, config, memory);
    });
  }
  if (block == MegatronLayerKind::kMamba || block == MegatronLayerKind::kAttention) return;
  const bool dense = config.is_dense(index);
  if (!dense) pre_mlp_layernorm_ = MegatronNorm(b, "pre_mlp_layernorm", memory, config.hidden_size, config.rms_norm);
  mlp_ = b.scope("mlp", [&]() -> std::unique_ptr<MegatronMlpLayer> {
    if (dense) return std::make_unique<MegatronMlp>(b, config, memory, config.ffn_hidden_size, true);
    return build_moe_layer(b, config, memory);
  });
}

Tensor MegatronTransformerLayer::forward(const Tensor& input) const {
  Tensor residual = input;
  Tensor hidden_states = residual;
  if (self_attention_) {
    if (input_layernorm_.memory != nullptr) hidden_states = input_layernorm_(hidden_states);
    hidden_states = self_attention_->forward(hidden_states);
    hidden_states = bias_dropout_add(config_, hidden_states, residual);
  }
  if (!mlp_) return hidden_states;
  residual = hidden_states;
  if (pre_mlp_layernorm_.memory != nullptr) hidden_states = pre_mlp_layernorm_(hidden_states);
  hidden_states = mlp_->forward(hidden_states);
  hidden_states = bias_dropout_add(config_, hidden_states, residual);
  residual.reset();
  return hidden_states;
}

MegatronGpt::MegatronGpt(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory,
                         const MegatronChunk& chunk)
    : config_(config), memory_(memory), chunk_(chunk) {
  const std::int64_t vocabulary = config.padded_vocab_size / config.parallel.tensor;
  if (chunk.embeds) {
    b.scope("embedding", [&] {
      word_embeddings_ = b.parameter("word_embeddings.weight", {vocabulary, config.hidden_size});
      if (config.learns_positions()) {
        position_embeddings_ =
            b.parameter("position_embeddings.weight", {config.max_position_embeddings, config.hidden_size});
      }
      return 0;
    });
  }
  if (config.rotary) {
    const std::int64_t dim = config.latent ? config.latent->qk_rope_head_dim : config.rotary_channels();
    rotary_frequencies_ = b.tape.empty({dim / 2}, DType::kFloat32, kBuffer, Category::kWeights);
  }
  b.scope("decoder", [&] {
    for (std::int64_t i = 0; i < chunk.layers; ++i) {
      layers_.push_back(b.scope("layers." + std::to_string(i), [&] {
        return std::make_unique<MegatronTransformerLayer>(b, config, memory, chunk.first_layer + i);
      }));
    }
    if (chunk.predicts)
      final_layernorm_ = MegatronNorm(b, "final_layernorm", memory, config.hidden_size, config.rms_norm);
    return 0;
  });
  if (chunk.predicts && !(config.shares_embeddings && chunk.embeds)) {
    output_weight_ = b.parameter("output_layer.weight", {vocabulary, config.hidden_size});
  }
}

Tensor MegatronGpt::embed(const MegatronBatch& batch) {
  // language_model_embedding.py: the words' rows are scattered along the sequence at once where nothing is added.
  Tensor embeddings = vocab_parallel_embedding(memory_, word_embeddings_, batch.tokens);
  if (config_.learns_positions()) {
    Tensor positions = exchange(embeddings, embeddings.shape(), aten::kClone);
    embeddings = std::move(embeddings) + std::move(positions);
  }
  return dropout(std::move(embeddings), config_.hidden_dropout);
}

Tensor MegatronGpt::loss(const MegatronBatch& batch, const Tensor& hidden_states) {
  Tensor logits = column_parallel_linear(memory_, hidden_states, config_.padded_vocab_size / config_.parallel.tensor);
  const Tensor labels = contiguous(transpose(batch.labels, 0, 1));
  switch (config_.options.loss) {
    case MegatronLoss::kTe: return te_cross_entropy(logits, config_.parallel.tensor);
    case MegatronLoss::kFused: return fused_vocab_parallel_cross_entropy(memory_, logits, labels);
    case MegatronLoss::kNative: break;
  }
  return vocab_parallel_cross_entropy(memory_, logits, labels);
}

void MegatronGpt::run_layers(Tensor& hidden_states) const {
  // transformer_block.py, _checkpointed_forward: "uniform" recomputes groups of so many layers, "block" the first ones.
  const std::size_t count = layers_.size();
  const auto asked = static_cast<std::size_t>(config_.options.recompute_layers);
  const bool blocks = config_.options.recomputes_blocks;
  const std::size_t at_a_time = blocks || asked == 0 ? 1 : asked;
  const std::size_t recomputed = config_.checkpointing != Checkpointing::kFull ? 0 : blocks ? asked : count;
  for (std::size_t i = 0; i < count;) {
    if (i >= recomputed) {
      hidden_states = layers_[i++]->forward(hidden_states);
      continue;
    }
    const std::size_t end = std::min(i + at_a_time, count);
    hidden_states = run_checkpointed_reentrant({hidden_states}, 1, [this, i, end](const KeptTensors& kept) {
      Tensor h = kept[0];
      for (std::size_t layer = i; layer < end; ++layer) h = layers_[layer]->forward(h);
      return h;
    });
    i = end;
  }
}

Tensor MegatronGpt::forward(const MegatronBatch& batch, const Tensor& input) {
  Tensor hidden_states = chunk_.embeds ? embed(batch) : input;
  if (config_.rotary && !rotary_positions_.defined()) {  // lru_cache: float32 angles of every position, kept
    const std::int64_t dim = 2 * rotary_frequencies_.size(0);
    rotary_positions_ =
        memory_.tape.empty({config_.sequence_length, 1, 1, dim}, DType::kFloat32, kRotary, Category::kWorkspaces);
  }
  memory_.rotary_angles = rotary_positions_;
  run_layers(hidden_states);
  if (!chunk_.predicts) return hidden_states;
  hidden_states = final_layernorm_(hidden_states);
  Tensor losses = loss(batch, hidden_states);
  hidden_states.reset();
  // pretrain_gpt.py, loss_func: the masked sum over the tokens.
  losses = reshape(losses, {losses.elements()});
  const Tensor mask = reshape(batch.loss_mask, {batch.loss_mask.elements()});
  return sum_over(multiply(std::move(losses), mask), 0, false);
}

}  // namespace memcalc
