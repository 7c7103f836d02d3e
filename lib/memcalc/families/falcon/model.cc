// Falcon: transformers models/falcon/modeling_falcon.py.
// MIRRORS(transformers, "models/falcon/modeling_falcon.py", "5.17.0")
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "memcalc/families/falcon/spec.h"
#include "memcalc/models/alibi.h"
#include "memcalc/models/decoder_model.h"
#include "memcalc/models/full_causal_mask.h"
#include "memcalc/models/hooked_base.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// FalconLinear: input @ weight.T + bias, in two steps.
struct FalconLinear : Linear {
  using Linear::Linear;

  [[nodiscard]] Tensor operator()(const Tensor& x) const {
    const auto own = [this](const Tensor& input) { return product(input); };
    ModuleHooks* hooks = weight.tape().modes.module_hooks;
    if (fine_tuned && hooks != nullptr && hooks->hooks_adapters()) return hooked_base(*this, x, own);
    return hooked_module(*this, {&weight, &bias}, x, [&](const Tensor& input) {
      return fine_tuned ? fine_tuned->forward(input, bias, own) : own(input);
    });
  }

 private:
  [[nodiscard]] Tensor product(const Tensor& x) const {
    Tensor hidden_states;
    {
      const Tensor transposed = permute(weight, {1, 0});
      hidden_states = matmul(x, transposed);
    }
    return bias.defined() ? hidden_states + bias : hidden_states;
  }
};

/// dropout_add
Tensor dropout_add(const Tensor& x, const Tensor& residual, double probability) {
  Tensor out = dropout(x, probability);
  out = residual + out;
  return out;
}

struct FalconAttention {
  FalconLinear query_key_value, dense;
  std::int64_t heads, kv_heads, kept_heads, head_dim;
  bool new_architecture, multi_query, alibi;
  double attention_dropout;
  Attention implementation;

  FalconAttention(ModuleBuilder& b, const FalconSpec& spec, const RunSpec& run)
      : query_key_value(b, "query_key_value", spec.hidden_size, outputs(spec), spec.bias),
        dense(b, "dense", spec.hidden_size, spec.hidden_size, spec.bias),
        heads(spec.num_attention_heads),
        kv_heads(spec.num_kv_heads),
        kept_heads(spec.kept_heads()),
        head_dim(spec.head_dim()),
        new_architecture(spec.new_decoder_architecture),
        multi_query(spec.multi_query),
        alibi(spec.alibi),
        attention_dropout(dropout_probability(run, spec.attention_dropout)),
        implementation(run.attention) {}

  [[nodiscard]] static std::int64_t outputs(const FalconSpec& spec) {
    const std::int64_t pairs = spec.new_decoder_architecture ? spec.num_kv_heads
                               : spec.multi_query            ? 1
                                                             : spec.num_attention_heads;
    return checked_multiply(spec.num_attention_heads + 2 * pairs, spec.head_dim());
  }

  /// x[…, [place], :] at dimension `dim`, which stays: a copy.
  [[nodiscard]] static Tensor one_of(const Tensor& x, int dim) {
    const std::array<std::pair<int, Tensor>, 1> places = {{{dim, no_grad::from_list(x.tape(), {1})}}};
    return index(x, places);
  }

  /// _split_heads: query, key, value [batch, tokens, heads, head_dim].
  [[nodiscard]] std::array<Tensor, 3> split_heads(const Tensor& fused_qkv) const {
    const std::int64_t batch = fused_qkv.size(0), tokens = fused_qkv.size(1);
    if (new_architecture) {
      const std::int64_t group = heads / kv_heads;
      const Tensor qkv = view(fused_qkv, {batch, tokens, -1, group + 2, head_dim});
      const Tensor query = slice(qkv, 3, 0, group);
      const Shape shape = query.shape();
      Tensor key = one_of(qkv, 3), value = one_of(qkv, 3);
      key = expand(key, shape);
      value = expand(value, shape);
      const auto flat = [&](const Tensor& x) { return reshape(x, {batch, tokens, heads, head_dim}); };
      return {flat(query), flat(key), flat(value)};
    }
    if (!multi_query) {
      const Tensor qkv = view(fused_qkv, {batch, tokens, heads, 3, head_dim});
      return {select(qkv, 3), select(qkv, 3), select(qkv, 3)};
    }
    const Tensor qkv = view(fused_qkv, {batch, tokens, heads + 2, head_dim});
    Tensor query = slice(qkv, 2, 0, heads);
    Tensor key = one_of(qkv, 2);
    return {std::move(query), std::move(key), one_of(qkv, 2)};
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const Tensor& bias, const Tensor& mask,
                                        const RotaryPositions& positions, KeyValueCache* cache) const {
    const std::int64_t batch = hidden_states.size(0), tokens = hidden_states.size(1);
    Tensor fused_qkv, query_layer, key_layer, value_layer, attn_output;
    const Locals locals(fused_qkv, query_layer, key_layer, value_layer);
    fused_qkv = query_key_value(hidden_states);
    {
      auto [query, key, value] = split_heads(fused_qkv);
      query_layer = std::move(query);
      key_layer = std::move(key);
      value_layer = std::move(value);
    }
    query_layer = reshape(transpose(query_layer, 1, 2), {batch, heads, tokens, head_dim});
    key_layer = reshape(transpose(key_layer, 1, 2), {batch, kept_heads, tokens, head_dim});
    value_layer = reshape(transpose(value_layer, 1, 2), {batch, kept_heads, tokens, head_dim});
    if (!alibi) apply_rotary(query_layer, key_layer, positions.cos, positions.sin);
    if (cache != nullptr) cache->update(key_layer, value_layer);

    AttentionResult result;
    if (implementation == Attention::kEager) {
      result.weights = eager_weights(query_layer, key_layer, bias, mask, hidden_states.dtype());
      attn_output = matmul(result.weights, value_layer);
      attn_output = transpose(attn_output, 1, 2);
    } else {
      SdpaOptions sdpa;
      if (alibi && hidden_states.tape().modes.training) sdpa.dropout = attention_dropout;
      sdpa.broadcast_heads = kept_heads == 1 && heads > 1;
      attn_output = transpose(scaled_dot_product_attention(query_layer, key_layer, value_layer, mask, sdpa), 1, 2);
    }
    attn_output = reshape(attn_output, {batch, tokens, heads * head_dim});
    attn_output = dense(attn_output);
    result.output = std::move(attn_output);
    return result;
  }

  /// Dropout is applied beside ALiBi alone.
  [[nodiscard]] Tensor eager_weights(const Tensor& query, const Tensor& key, const Tensor& bias, const Tensor& mask,
                                     DType dtype) const {
    Tensor scores = matmul(query, transpose(key, 2, 3));
    if (!alibi) {
      scores = multiply_in_place(scores);
      return softmax(scores + mask, dtype);
    }
    scores = to_dtype(scores, DType::kFloat32);
    Tensor logits = scores + bias;
    logits = multiply_in_place(logits);
    Tensor probabilities = softmax(logits + mask, dtype);
    return dropout(probabilities, attention_dropout);
  }
};

struct FalconLayer {
  FalconAttention self_attention;
  FalconLinear dense_h_to_4h, dense_4h_to_h;
  std::optional<LayerNorm> post_attention_layernorm, input_layernorm, ln_attn, ln_mlp;
  std::string activation;
  FalconNorms norms;
  double hidden_dropout, attention_dropout;

  FalconLayer(ModuleBuilder& b, const FalconSpec& spec, const RunSpec& run)
      : self_attention(b.scope("self_attention", [&] { return FalconAttention(b, spec, run); })),
        dense_h_to_4h(b, "mlp.dense_h_to_4h", spec.hidden_size, spec.ffn_hidden_size, spec.bias),
        dense_4h_to_h(b, "mlp.dense_4h_to_h", spec.ffn_hidden_size, spec.hidden_size, spec.bias),
        activation(spec.activation),
        norms(spec.norms),
        hidden_dropout(dropout_probability(run, spec.hidden_dropout)),
        attention_dropout(dropout_probability(run, spec.attention_dropout)) {
    const auto norm = [&](std::string_view name) { return LayerNorm(b, name, spec.hidden_size); };
    if (norms == FalconNorms::kSequential) post_attention_layernorm = norm("post_attention_layernorm");
    if (norms != FalconNorms::kParallel) {
      input_layernorm = norm("input_layernorm");
    } else {
      ln_attn = norm("ln_attn");
      ln_mlp = norm("ln_mlp");
    }
  }

  [[nodiscard]] Tensor mlp(const Tensor& input) const {
    Tensor x;
    {
      const Tensor widened = dense_h_to_4h(input);
      x = activation_function(activation, widened);
    }
    x = dense_4h_to_h(x);
    return x;
  }

  /// Beside the hidden states it returns its attention weights.
  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const Tensor& alibi, const Tensor& mask,
                               const RotaryPositions& positions, KeyValueCache* cache, Tensor& attn_weights) const {
    Tensor residual = hidden_states, attention_layernorm_out, mlp_layernorm_out, mlp_output;
    AttentionResult attention;
    Tensor& attention_output = attention.output;
    const Locals locals(residual, attention_layernorm_out, mlp_layernorm_out, attention_output, attention.weights,
                        mlp_output);
    attention_layernorm_out = (norms == FalconNorms::kParallel ? *ln_attn : *input_layernorm)(hidden_states);
    if (norms == FalconNorms::kParallel) mlp_layernorm_out = (*ln_mlp)(hidden_states);
    attention = self_attention.forward(attention_layernorm_out, alibi, mask, positions, cache);
    if (norms == FalconNorms::kSequential) {
      residual = dropout_add(attention_output, residual, attention_dropout);
      mlp_layernorm_out = (*post_attention_layernorm)(residual);
    } else if (norms == FalconNorms::kShared) {
      mlp_layernorm_out = attention_layernorm_out;
    }
    mlp_output = mlp(mlp_layernorm_out);
    if (norms != FalconNorms::kSequential) mlp_output = add_in_place(mlp_output, attention_output);
    Tensor output = dropout_add(mlp_output, residual, hidden_dropout);
    if (!output.tape().moment.recomputing) attn_weights = std::move(attention.weights);
    return output;
  }
};

class FalconForCausalLm : public DecoderModel {
 public:
  FalconForCausalLm(const FalconSpec& spec, const RunSpec& run, ModuleBuilder& b)
      : DecoderModel(run, spec.activation), alibi_(spec.alibi), heads_(spec.num_attention_heads) {
    if (run.attention == Attention::kFlash) {
      throw Error(ErrorCode::kUnsupported,
                  "attention flash: how Falcon calls the flash-attn package is not modelled; accepted: --attn sdpa");
    }
    b.scope("transformer", [&] {
      word_embeddings_ = Embedding(b, "word_embeddings", spec.vocab_size, spec.hidden_size);
      for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
        h_.push_back(b.scope("h." + std::to_string(i), [&] { return FalconLayer(b, spec, run); }));
      }
      ln_f_ = LayerNorm(b, "ln_f", spec.hidden_size);
      return 0;
    });
    rotary_emb_ = RotaryEmbedding(b, spec.head_dim());
    rotary_emb_.initialize(b).reset();
    build_head(b, word_embeddings_,
               {.width = spec.hidden_size,
                .vocabulary = spec.vocab_size,
                .labels = spec.num_labels,
                .tied = spec.tie_word_embeddings});
  }

 private:
  [[nodiscard]] Tensor decode(const Batch& batch, KeyValueCache* cache) const override {
    Tensor inputs_embeds = word_embeddings_(batch.input_ids);
    Tape& tape = inputs_embeds.tape();
    const std::int64_t sequences = inputs_embeds.size(0);
    PastTokens past(cache);
    past.cached = true;  // the mask gets no position_ids
    Tensor alibi, mask;
    if (alibi_) {
      const Shape shape{sequences, past.seen + inputs_embeds.size(1)};
      mask = batch.attention_mask.defined() ? batch.attention_mask : no_grad::ones(tape, shape, DType::kInt64);
      alibi = build_alibi_tensor(mask, heads_, DType::kBFloat16, inputs_embeds.dtype());
    }
    Tensor position_ids = position_ids_of(batch, inputs_embeds);
    Tensor causal_mask = create_full_causal_mask(run_, inputs_embeds, batch, past);
    if (alibi_) {
      if (causal_mask.dtype() == DType::kBool) {
        Tensor additive;
        {
          const Tensor zero = no_grad::full(tape, {}, inputs_embeds.dtype());
          additive = where(causal_mask, zero);
        }
        causal_mask = std::move(additive);
      }
      alibi = no_grad::view(alibi, {sequences, heads_, 1, alibi.size(2)});
      Tensor biased;
      {
        Tensor scaled = no_grad::divide(alibi);
        Tensor masked = no_grad::less(causal_mask);
        biased = masked_fill(scaled, masked);
        drop(scaled, masked);
      }
      causal_mask = std::move(biased);
    }
    RotaryPositions positions = rotary_emb_.forward(inputs_embeds, position_ids);
    Tensor hidden_states = inputs_embeds;
    BlockOutputs outputs =
        run_blocks(h_, std::move(hidden_states), {causal_mask, position_ids, alibi, positions.cos, positions.sin},
                   cache, [cache](const FalconLayer& block, const KeptTensors& kept, Tensor& attn_weights) {
                     return block.forward(kept[0], kept[3], kept[1], {kept[4], kept[5], {}}, cache, attn_weights);
                   });
    hidden_states = ln_f_(std::exchange(outputs.hidden_states, {}));
    drop(position_ids, inputs_embeds, alibi, mask, causal_mask, positions.sin, positions.cos, outputs.attn_weights,
         outputs.returned);
    return hidden_states;
  }

  bool alibi_;
  std::int64_t heads_;
  Embedding word_embeddings_;
  std::vector<FalconLayer> h_;
  LayerNorm ln_f_;
  RotaryEmbedding rotary_emb_;
};

}  // namespace

std::unique_ptr<Model> build_falcon(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<FalconForCausalLm>(architecture.as<FalconSpec>(), run, builder);
}

}  // namespace memcalc
