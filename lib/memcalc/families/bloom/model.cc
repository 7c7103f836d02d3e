// BLOOM: transformers models/bloom/modeling_bloom.py.
// MIRRORS(transformers, "models/bloom/modeling_bloom.py", "5.17.0")
#include <string>
#include <utility>
#include <vector>

#include "memcalc/families/bloom/spec.h"
#include "memcalc/models/alibi.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/decoder_model.h"
#include "memcalc/symbolic/ops/baddbmm.h"
#include "memcalc/symbolic/ops/bloom_gelu.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// dropout_add
Tensor dropout_add(const Tensor& x, const Tensor& residual, double probability) {
  Tensor out = dropout(x, probability);
  out = residual + out;
  return out;
}

struct Block {
  LayerNorm input_layernorm;
  Linear query_key_value, dense;
  LayerNorm post_attention_layernorm;
  Linear dense_h_to_4h, dense_4h_to_h;
  std::int64_t heads, head_dim;
  double hidden_dropout, attention_dropout;
  bool residual_is_normed;

  Block(ModuleBuilder& b, const BloomSpec& spec, const RunSpec& run)
      : input_layernorm(b, "input_layernorm", spec.hidden_size),
        query_key_value(b, "self_attention.query_key_value", spec.hidden_size, 3 * spec.hidden_size),
        dense(b, "self_attention.dense", spec.hidden_size, spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size),
        dense_h_to_4h(b, "mlp.dense_h_to_4h", spec.hidden_size, 4 * spec.hidden_size),
        dense_4h_to_h(b, "mlp.dense_4h_to_h", 4 * spec.hidden_size, spec.hidden_size),
        heads(spec.n_head),
        head_dim(spec.hidden_size / spec.n_head),
        hidden_dropout(dropout_probability(run, spec.hidden_dropout)),
        attention_dropout(dropout_probability(run, spec.attention_dropout)),
        residual_is_normed(spec.apply_residual_connection_post_layernorm) {}

  [[nodiscard]] AttentionResult self_attention(const Tensor& hidden_states, const Tensor& residual, const Tensor& alibi,
                                               const Tensor& mask, KeyValueCache* cache) const {
    const std::int64_t batch = hidden_states.size(0), tokens = hidden_states.size(1);
    Tensor fused_qkv, query_layer, key_layer, value_layer, attention_scores, attn_weights, probs_reshaped,
        context_layer;
    const Locals locals(fused_qkv, query_layer, key_layer, value_layer, attention_scores, attn_weights, probs_reshaped,
                        context_layer);
    AttentionResult result;
    fused_qkv = query_key_value(hidden_states);
    {  // _reshape
      const Tensor fused = view(fused_qkv, {batch, tokens, heads, 3, head_dim});
      for (Tensor* layer : {&query_layer, &key_layer, &value_layer}) *layer = transpose(select(fused, 3), 1, 2);
    }
    if (cache != nullptr) cache->update(key_layer, value_layer);
    query_layer = reshape(query_layer, {batch * heads, -1, head_dim});
    key_layer = transpose(reshape(key_layer, {batch * heads, -1, head_dim}), 1, 2);
    value_layer = reshape(value_layer, {batch * heads, -1, head_dim});
    attention_scores = baddbmm(alibi, query_layer, key_layer);
    attn_weights = view(attention_scores, {batch, heads, tokens, -1});
    if (mask.defined()) attn_weights = attn_weights + mask;
    result.weights = to_dtype(softmax(attn_weights, DType::kFloat32), query_layer.dtype());
    result.weights = dropout(result.weights, attention_dropout);
    probs_reshaped = view(result.weights, {batch * heads, tokens, -1});
    context_layer = batched_product(probs_reshaped, value_layer);
    {  // _merge_heads
      const Tensor x = permute(view(context_layer, {batch, heads, tokens, head_dim}), {0, 2, 1, 3});
      context_layer = reshape(x, {batch, tokens, heads * head_dim});
    }
    result.output = dense(context_layer);
    result.output = dropout_add(result.output, residual, hidden_dropout);
    return result;
  }

  [[nodiscard]] Tensor mlp(const Tensor& input, const Tensor& residual) const {
    Tensor hidden_states, intermediate_output;
    const Locals locals(hidden_states, intermediate_output);
    {
      const Tensor widened = dense_h_to_4h(input);
      hidden_states = bloom_gelu(widened);
    }
    intermediate_output = dense_4h_to_h(hidden_states);
    return dropout_add(intermediate_output, residual, hidden_dropout);
  }

  /// Beside the hidden states it returns its attention weights.
  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const Tensor& alibi, const Tensor& mask,
                               KeyValueCache* cache, Tensor& attn_weights) const {
    Tensor layernorm_output, residual;
    AttentionResult attention;
    const Locals locals(layernorm_output, residual, attention.output, attention.weights);
    layernorm_output = input_layernorm(hidden_states);
    residual = residual_is_normed ? layernorm_output : hidden_states;
    attention = self_attention(layernorm_output, residual, alibi, mask, cache);
    layernorm_output = post_attention_layernorm(attention.output);
    residual = residual_is_normed ? layernorm_output : attention.output;
    Tensor output = mlp(layernorm_output, residual);
    if (!output.tape().moment.recomputing) attn_weights = std::move(attention.weights);
    return output;
  }
};

class BloomForCausalLm : public DecoderModel {
 public:
  BloomForCausalLm(const BloomSpec& spec, const RunSpec& run, ModuleBuilder& b)
      : DecoderModel(run, {}), heads_(spec.n_head) {
    takes_position_ids = false;  // ALiBi
    b.scope("transformer", [&] {
      word_embeddings_ = Embedding(b, "word_embeddings", spec.vocab_size, spec.hidden_size);
      word_embeddings_layernorm_ = LayerNorm(b, "word_embeddings_layernorm", spec.hidden_size);
      for (std::int64_t i = 0; i < spec.n_layer; ++i) {
        h_.push_back(b.scope("h." + std::to_string(i), [&] { return Block(b, spec, run); }));
      }
      ln_f_ = LayerNorm(b, "ln_f", spec.hidden_size);
      return 0;
    });
    build_head(b, word_embeddings_,
               {.width = spec.hidden_size,
                .vocabulary = spec.vocab_size,
                .labels = spec.num_labels,
                .tied = spec.tie_word_embeddings});
  }

 private:
  [[nodiscard]] Tensor decode(const Batch& batch, KeyValueCache* cache) const override {
    Tensor inputs_embeds = word_embeddings_(batch.input_ids);
    const PastTokens past(cache);
    Tensor hidden_states = word_embeddings_layernorm_(inputs_embeds);
    Batch masked = batch;
    if (!batch.attention_mask.defined()) {
      const Shape shape{inputs_embeds.size(0), past.seen + inputs_embeds.size(1)};
      masked.attention_mask = no_grad::ones(inputs_embeds.tape(), shape, DType::kFloat32);
      masked.padded = false;
    }
    Tensor alibi = build_alibi_tensor(masked.attention_mask, heads_, DType::kFloat32, hidden_states.dtype());
    Tensor causal_mask = create_causal_mask(run_, inputs_embeds, masked, past);
    BlockOutputs outputs = run_blocks(h_, std::move(hidden_states), {causal_mask, alibi}, cache,
                                      [cache](const Block& block, const KeptTensors& kept, Tensor& attn_weights) {
                                        return block.forward(kept[0], kept[2], kept[1], cache, attn_weights);
                                      });
    hidden_states = ln_f_(std::exchange(outputs.hidden_states, {}));
    masked.clear();
    drop(inputs_embeds, alibi, causal_mask, outputs.attn_weights, outputs.returned);
    return hidden_states;
  }

  std::int64_t heads_;
  Embedding word_embeddings_;
  LayerNorm word_embeddings_layernorm_;
  std::vector<Block> h_;
  LayerNorm ln_f_;
};

}  // namespace

std::unique_ptr<Model> build_bloom(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<BloomForCausalLm>(architecture.as<BloomSpec>(), run, builder);
}

}  // namespace memcalc
