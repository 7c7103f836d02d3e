// megatron/core/models/gpt/gpt_model.py, transformer/transformer_{block,layer}.py, transformer/mlp.py (core_r0.14.0).
// MIRRORS(megatron, "core/models/gpt/gpt_model.py", "0.14.0")
// MIRRORS(megatron, "core/transformer/mlp.py", "0.14.0")
// MIRRORS(megatron, "core/transformer/transformer_block.py", "0.14.0")
// MIRRORS(megatron, "core/transformer/transformer_layer.py", "0.14.0")
#include "memcalc/models/megatron_gpt.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/checkpoint.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/tensor_parallel.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kRotary{"megatron::RotaryEmbedding"}, kBuffer{"buffer"}, kBatch{"megatron::get_batch"};

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
                                                   MegatronMemory& memory, std::int64_t index, bool cross_attends)
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
  if (cross_attends) {
    pre_cross_attn_layernorm_ =
        MegatronNorm(b, "pre_cross_attn_layernorm", memory, config.hidden_size, config.rms_norm);
    cross_attention_ = b.scope("cross_attention", [&] { return build_cross_attention(b, config, memory); });
  }
  const bool dense = config.is_dense(index);
  if (!dense) pre_mlp_layernorm_ = MegatronNorm(b, "pre_mlp_layernorm", memory, config.hidden_size, config.rms_norm);
  mlp_ = b.scope("mlp", [&]() -> std::unique_ptr<MegatronMlpLayer> {
    if (dense) return std::make_unique<MegatronMlp>(b, config, memory, config.ffn_hidden_size, true);
    return build_moe_layer(b, config, memory);
  });
}

Tensor MegatronTransformerLayer::forward(const Tensor& input, const MegatronLayerInputs& inputs) const {
  Tensor residual = input;
  Tensor hidden_states = residual;
  if (self_attention_) {
    if (input_layernorm_.memory != nullptr) hidden_states = input_layernorm_(hidden_states);
    hidden_states = self_attention_->forward(hidden_states, inputs.self);
    hidden_states = bias_dropout_add(config_, hidden_states, residual);
  }
  if (!mlp_) return hidden_states;
  residual = hidden_states;
  if (cross_attention_ != nullptr) {
    hidden_states = cross_attention_->forward(pre_cross_attn_layernorm_(hidden_states), inputs.cross);
    hidden_states = bias_dropout_add(config_, hidden_states, residual);
    residual = hidden_states;
  }
  if (pre_mlp_layernorm_.memory != nullptr) hidden_states = pre_mlp_layernorm_(hidden_states);
  hidden_states = mlp_->forward(hidden_states);
  hidden_states = bias_dropout_add(config_, hidden_states, residual);
  residual.reset();
  return hidden_states;
}

MegatronBlock::MegatronBlock(ModuleBuilder& b, std::string_view name, const MegatronConfig& config,
                             MegatronMemory& memory, std::int64_t first_layer, std::int64_t layers, bool has_norm,
                             bool cross_attends)
    : config_(config) {
  b.scope(name, [&] {
    for (std::int64_t i = 0; i < layers; ++i) {
      layers_.push_back(b.scope("layers." + std::to_string(i), [&] {
        return std::make_unique<MegatronTransformerLayer>(b, config, memory, first_layer + i, cross_attends);
      }));
    }
    if (has_norm) final_layernorm_ = MegatronNorm(b, "final_layernorm", memory, config.hidden_size, config.rms_norm);
    return 0;
  });
}

void MegatronBlock::run_layers(Tensor& hidden_states, const MegatronLayerInputs& inputs) const {
  // transformer_block.py, _checkpointed_forward: "uniform" recomputes groups of so many layers, "block" the first ones.
  const std::size_t count = layers_.size();
  const auto asked = static_cast<std::size_t>(config_.options.recompute_layers);
  const bool blocks = config_.options.recomputes_blocks;
  const std::size_t at_a_time = blocks || asked == 0 ? 1 : asked;
  const std::size_t recomputed = config_.checkpointing != Checkpointing::kFull ? 0 : blocks ? asked : count;
  for (std::size_t i = 0; i < count;) {
    if (i >= recomputed) {
      hidden_states = layers_[i++]->forward(hidden_states, inputs);
      continue;
    }
    const std::size_t end = std::min(i + at_a_time, count);
    KeptTensors given{hidden_states};
    if (inputs.cross.context.defined()) given.push_back(inputs.cross.context);
    hidden_states = run_checkpointed_reentrant(given, given.size(), [this, i, end, inputs](const KeptTensors& kept) {
      Tensor h = kept[0];
      MegatronLayerInputs again = inputs;
      if (kept.size() > 1) again.cross.context = kept[1];
      for (std::size_t layer = i; layer < end; ++layer) h = layers_[layer]->forward(h, again);
      return h;
    });
    i = end;
  }
}

MegatronEmbedding::MegatronEmbedding(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory)
    : config_(config), memory_(memory) {
  b.scope("embedding", [&] {
    word_embeddings_ =
        b.parameter("word_embeddings.weight", {config.padded_vocab_size / config.parallel.tensor, config.hidden_size});
    if (config.learns_positions()) {
      position_embeddings_ =
          b.parameter("position_embeddings.weight", {config.max_position_embeddings, config.hidden_size});
    }
    if (config.token_types > 0) {
      tokentype_embeddings_ = b.parameter("tokentype_embeddings.weight", {config.token_types, config.hidden_size});
    }
    return 0;
  });
}

Tensor MegatronEmbedding::operator()(const Tensor& tokens) const {
  // language_model_embedding.py: the words' rows are scattered along the sequence at once where nothing is added.
  Tensor embeddings = vocab_parallel_embedding(memory_, word_embeddings_, tokens);
  if (config_.learns_positions()) {
    Tensor positions = exchange(embeddings, embeddings.shape(), aten::kClone);
    embeddings = std::move(embeddings) + std::move(positions);
  }
  if (tokentype_embeddings_.defined()) {
    Tensor types = exchange(embeddings, embeddings.shape(), aten::kClone);
    embeddings = std::move(embeddings) + std::move(types);
  }
  return dropout(std::move(embeddings), config_.hidden_dropout);
}

MegatronHead::MegatronHead(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory, bool holds_weight,
                           bool with_bias)
    : config_(config), memory_(memory), has_bias_(with_bias) {
  const std::int64_t vocabulary = config.padded_vocab_size / config.parallel.tensor;
  if (holds_weight) weight_ = b.parameter("output_layer.weight", {vocabulary, config.hidden_size});
  if (with_bias) bias_ = b.parameter("output_layer.bias", {vocabulary}, false);
}

Tensor MegatronHead::summed_loss(const MegatronBatch& batch, Tensor hidden_states) const {
  const auto of_tokens = [&] {
    Tensor logits =
        column_parallel_linear(memory_, hidden_states, config_.padded_vocab_size / config_.parallel.tensor, has_bias_);
    const Tensor labels = contiguous(transpose(batch.labels, 0, 1));
    switch (config_.options.loss) {
      case MegatronLoss::kTe: return te_cross_entropy(logits, config_.parallel.tensor);
      case MegatronLoss::kFused: return fused_vocab_parallel_cross_entropy(memory_, logits, labels);
      case MegatronLoss::kNative: break;
    }
    return vocab_parallel_cross_entropy(memory_, logits, labels);
  };
  Tensor losses = of_tokens();
  hidden_states.reset();
  losses = reshape(losses, {losses.elements()});
  const Tensor mask = reshape(batch.loss_mask, {batch.loss_mask.elements()});
  return sum_over(multiply(std::move(losses), mask), 0, false);
}

Tensor MegatronModel::given(const Shape& shape, DType dtype) const {
  return memory_.tape.empty(shape, dtype, kBatch, Category::kInputs);
}

namespace {

class MegatronGpt : public MegatronModel {
 public:
  MegatronGpt(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory, const MegatronChunk& chunk)
      : MegatronModel(config, memory, chunk) {
    if (chunk.embeds) embedding_.emplace(b, config, memory);
    if (config.rotary) {
      const std::int64_t dim = config.latent ? config.latent->qk_rope_head_dim : config.rotary_channels();
      rotary_frequencies_ = b.tape.empty({dim / 2}, DType::kFloat32, kBuffer, Category::kWeights);
    }
    decoder_.emplace(b, "decoder", config, memory, chunk.first_layer, chunk.layers, chunk.predicts);
    if (chunk.predicts) head_.emplace(b, config, memory, !(config.shares_embeddings && chunk.embeds), false);
  }

  [[nodiscard]] MegatronBatch make_batch() const override {
    const Shape tokens{config_.micro_batch_size, config_.sequence_length / config_.parallel.context};
    MegatronBatch batch;
    if (chunk_.embeds) {
      batch.tokens = given(tokens, DType::kInt64);
      batch.position_ids = given(tokens, DType::kInt64);
    }
    if (chunk_.predicts) {
      batch.labels = given(tokens, DType::kInt64);
      batch.loss_mask = given(tokens, DType::kFloat32);
    }
    if (!config_.options.fuses_softmax) {
      batch.attention_mask = given({tokens[0], 1, config_.sequence_length, config_.sequence_length}, DType::kBool);
    }
    return batch;
  }

  [[nodiscard]] Tensor forward(const MegatronBatch& batch, const Tensor& input) override {
    Tensor hidden_states = chunk_.embeds ? (*embedding_)(batch.tokens) : input;
    if (config_.rotary && !rotary_positions_.defined()) {  // lru_cache: float32 angles of every position, kept
      const std::int64_t dim = 2 * rotary_frequencies_.size(0);
      rotary_positions_ =
          memory_.tape.empty({config_.sequence_length, 1, 1, dim}, DType::kFloat32, kRotary, Category::kWorkspaces);
    }
    memory_.rotary_angles = rotary_positions_;
    MegatronLayerInputs inputs;
    inputs.self.mask = batch.attention_mask;
    decoder_->run_layers(hidden_states, inputs);
    if (!chunk_.predicts) return hidden_states;
    hidden_states = decoder_->normalize(hidden_states);
    return head_->summed_loss(batch, std::move(hidden_states));
  }

 private:
  std::optional<MegatronEmbedding> embedding_;
  std::optional<MegatronBlock> decoder_;
  std::optional<MegatronHead> head_;
  Tensor rotary_frequencies_, rotary_positions_;
};

}  // namespace

std::unique_ptr<MegatronModel> build_megatron_gpt(ModuleBuilder& b, const MegatronConfig& config,
                                                  MegatronMemory& memory, const MegatronChunk& chunk) {
  return std::make_unique<MegatronGpt>(b, config, memory, chunk);
}

}  // namespace memcalc
