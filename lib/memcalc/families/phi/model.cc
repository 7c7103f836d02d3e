// Phi-1, 1.5 and 2: transformers models/phi/modeling_phi.py.
// MIRRORS(transformers, "models/phi/modeling_phi.py", "5.17.0")
#include "memcalc/families/phi/spec.h"
#include "memcalc/models/decoder_model.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct SelfAttention {
  Linear q_proj, k_proj, v_proj, dense;
  LayerNorm q_layernorm, k_layernorm;
  bool qk_layernorm;
  std::int64_t head_dim, rotary_ndims;
  AttentionOptions options;

  SelfAttention(ModuleBuilder& b, const PhiSpec& spec, const AttentionOptions& options)
      : q_proj(b, "q_proj", spec.hidden_size, checked_multiply(spec.num_attention_heads, spec.head_dim)),
        k_proj(b, "k_proj", spec.hidden_size, checked_multiply(spec.num_key_value_heads, spec.head_dim)),
        v_proj(b, "v_proj", spec.hidden_size, checked_multiply(spec.num_key_value_heads, spec.head_dim)),
        dense(b, "dense", checked_multiply(spec.num_attention_heads, spec.head_dim), spec.hidden_size),
        qk_layernorm(spec.qk_layernorm),
        head_dim(spec.head_dim),
        rotary_ndims(spec.rotary_dim),
        options(options) {
    if (!qk_layernorm) return;
    q_layernorm = LayerNorm(b, "q_layernorm", head_dim);
    k_layernorm = LayerNorm(b, "k_layernorm", head_dim);
  }

  [[nodiscard]] Tensor heads(const Linear& projection, const Tensor& hidden_states) const {
    return transpose(view(projection(hidden_states), {hidden_states.size(0), hidden_states.size(1), -1, head_dim}), 1,
                     2);
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = heads(q_proj, hidden_states);
    Tensor key_states = heads(k_proj, hidden_states);
    Tensor value_states = heads(v_proj, hidden_states);
    if (qk_layernorm) {
      query_states = q_layernorm(query_states);
      key_states = k_layernorm(key_states);
    }
    const std::int64_t rest = head_dim - rotary_ndims;
    Tensor query_rot = slice(query_states, -1, 0, rotary_ndims);
    Tensor query_pass = slice(query_states, -1, rotary_ndims, rest);
    Tensor key_rot = slice(key_states, -1, 0, rotary_ndims);
    Tensor key_pass = slice(key_states, -1, rotary_ndims, rest);
    apply_rotary(query_rot, key_rot, positions.cos, positions.sin);
    query_states = cat(query_rot, query_pass, -1);
    key_states = cat(key_rot, key_pass, -1);
    if (cache != nullptr) cache->update(key_states, value_states);
    AttentionResult result = attention_interface(query_states, key_states, value_states, mask, options);
    result.output = reshape(result.output, {hidden_states.size(0), hidden_states.size(1), -1});
    result.output = dense(result.output);
    drop(query_states, key_states, value_states, query_rot, query_pass, key_rot, key_pass);
    return result;
  }
};

struct DecoderLayer {
  SelfAttention self_attn;
  Linear fc1, fc2;
  std::string activation_fn;
  LayerNorm input_layernorm;
  double resid_pdrop;

  DecoderLayer(ModuleBuilder& b, const PhiSpec& spec, const RunSpec& run)
      : self_attn(b.scope("self_attn",
                          [&] { return SelfAttention(b, spec, causal_attention(run, spec.attention_dropout)); })),
        fc1(b, "mlp.fc1", spec.hidden_size, spec.intermediate_size),
        fc2(b, "mlp.fc2", spec.intermediate_size, spec.hidden_size),
        activation_fn(spec.hidden_act),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        resid_pdrop(dropout_probability(run, spec.resid_pdrop)) {}

  [[nodiscard]] Tensor mlp(const Tensor& x) const {
    Tensor hidden_states = fc1(x);
    hidden_states = activation_function(activation_fn, hidden_states);
    hidden_states = fc2(hidden_states);
    return hidden_states;
  }

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    Tensor residual = input;
    Tensor hidden_states = input_layernorm(input);
    AttentionResult attention = self_attn.forward(hidden_states, positions, mask, cache);
    Tensor attn_outputs = std::move(attention.output);
    attn_outputs = dropout(attn_outputs, resid_pdrop);
    Tensor feed_forward_hidden_states = dropout(mlp(hidden_states), resid_pdrop);
    hidden_states = attn_outputs + feed_forward_hidden_states + residual;
    drop(residual, attn_outputs, attention.weights, feed_forward_hidden_states);
    return hidden_states;
  }
};

class PhiForCausalLm : public DecoderModel {
 public:
  PhiForCausalLm(const PhiSpec& spec, const RunSpec& run, ModuleBuilder& b)
      : DecoderModel(run, spec.hidden_act), embd_pdrop_(dropout_probability(run, spec.embd_pdrop)) {
    b.scope("model", [&] {
      embed_tokens_ = Embedding(b, "embed_tokens", spec.vocab_size, spec.hidden_size);
      for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
        layers_.push_back(b.scope("layers." + std::to_string(i), [&] { return DecoderLayer(b, spec, run); }));
      }
      rotary_emb_ = RotaryEmbedding(b, spec.rotary_dim);
      final_layernorm_ = LayerNorm(b, "final_layernorm", spec.hidden_size);
      return 0;
    });
    rotary_emb_.initialize(b).reset();
    build_head(b, embed_tokens_,
               {.width = spec.hidden_size,
                .vocabulary = spec.vocab_size,
                .labels = spec.num_labels,
                .tied = spec.tie_word_embeddings,
                .bias = true});
  }

 private:
  [[nodiscard]] Tensor decode(const Batch& batch, KeyValueCache* cache) const override {
    Tensor inputs_embeds = embed_tokens_(batch.input_ids);
    Tensor position_ids = position_ids_of(batch, inputs_embeds);
    Tensor causal_mask = create_causal_mask(run_, inputs_embeds, batch, cache);
    inputs_embeds = dropout(inputs_embeds, embd_pdrop_);
    Tensor hidden_states = inputs_embeds;
    RotaryPositions positions = rotary_emb_.forward(hidden_states, position_ids);
    for (const DecoderLayer& layer : layers_) {
      hidden_states = checkpointed(
          run_, {hidden_states}, {causal_mask, position_ids, positions.cos, positions.sin},
          [&layer, cache](const KeptTensors& kept) {
            return layer.forward(kept[0], {kept[3], kept[4]}, kept[1], cache);
          },
          cache);
    }
    hidden_states = final_layernorm_(hidden_states);
    drop(position_ids, inputs_embeds, causal_mask, positions.cos, positions.sin);
    return hidden_states;
  }

  double embd_pdrop_;
  Embedding embed_tokens_;
  std::vector<DecoderLayer> layers_;
  RotaryEmbedding rotary_emb_;
  LayerNorm final_layernorm_;
};

}  // namespace

std::unique_ptr<Model> build_phi(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<PhiForCausalLm>(architecture.as<PhiSpec>(), run, builder);
}

}  // namespace memcalc
