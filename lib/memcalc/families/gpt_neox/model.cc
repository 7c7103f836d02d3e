// GPT-NeoX and Pythia: transformers models/gpt_neox/modeling_gpt_neox.py.
// MIRRORS(transformers, "models/gpt_neox/modeling_gpt_neox.py", "5.17.0")
#include "memcalc/families/gpt_neox/spec.h"
#include "memcalc/models/decoder_model.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct Layer {
  LayerNorm input_layernorm, post_attention_layernorm;
  Linear query_key_value, dense;
  Linear dense_h_to_4h, dense_4h_to_h;
  std::int64_t head_size;
  std::string act;
  double hidden_dropout;
  bool use_parallel_residual;
  AttentionOptions options;

  Layer(ModuleBuilder& b, const GptNeoxSpec& spec, const RunSpec& run)
      : input_layernorm(b, "input_layernorm", spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size),
        query_key_value(b, "attention.query_key_value", spec.hidden_size, 3 * spec.hidden_size, spec.attention_bias),
        dense(b, "attention.dense", spec.hidden_size, spec.hidden_size, spec.attention_bias),
        dense_h_to_4h(b, "mlp.dense_h_to_4h", spec.hidden_size, spec.intermediate_size),
        dense_4h_to_h(b, "mlp.dense_4h_to_h", spec.intermediate_size, spec.hidden_size),
        head_size(spec.hidden_size / spec.num_attention_heads),
        act(spec.hidden_act),
        hidden_dropout(dropout_probability(run, spec.hidden_dropout)),
        use_parallel_residual(spec.use_parallel_residual),
        options(causal_attention(run, spec.attention_dropout)) {}

  [[nodiscard]] AttentionResult attention(const Tensor& hidden_states, const RotaryPositions& positions,
                                          const Tensor& mask, KeyValueCache* cache) const {
    Tensor qkv = transpose(
        view(query_key_value(hidden_states), {hidden_states.size(0), hidden_states.size(1), -1, 3 * head_size}), 1, 2);
    std::vector<Tensor> parts = split(qkv, -1, 3);
    Tensor query_states = std::move(parts[0]), key_states = std::move(parts[1]), value_states = std::move(parts[2]);
    apply_partial_rotary(query_states, key_states, positions);
    if (cache != nullptr) cache->update(key_states, value_states);
    AttentionResult result = attention_interface(query_states, key_states, value_states, mask, options);
    result.output = reshape(result.output, {hidden_states.size(0), hidden_states.size(1), -1});
    result.output = dense(result.output);
    drop(qkv, query_states, key_states, value_states);
    return result;
  }

  [[nodiscard]] Tensor mlp(const Tensor& x) const {
    Tensor hidden_states = dense_h_to_4h(x);
    hidden_states = activation_function(act, hidden_states);
    hidden_states = dense_4h_to_h(hidden_states);
    return hidden_states;
  }

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    AttentionResult attended = attention(input_layernorm(input), positions, mask, cache);
    Tensor attn_output = std::move(attended.output);
    attn_output = dropout(attn_output, hidden_dropout);
    Tensor hidden_states, mlp_output;
    if (use_parallel_residual) {
      mlp_output = mlp(post_attention_layernorm(input));
      mlp_output = dropout(mlp_output, hidden_dropout);
      hidden_states = mlp_output + attn_output + input;
    } else {
      attn_output = attn_output + input;
      mlp_output = mlp(post_attention_layernorm(attn_output));
      mlp_output = dropout(mlp_output, hidden_dropout);
      hidden_states = mlp_output + attn_output;
    }
    drop(attn_output, attended.weights, mlp_output);
    return hidden_states;
  }
};

class GptNeoxForCausalLm : public DecoderModel {
 public:
  GptNeoxForCausalLm(const GptNeoxSpec& spec, const RunSpec& run, ModuleBuilder& b)
      : DecoderModel(run, spec.hidden_act), hidden_dropout_(dropout_probability(run, spec.hidden_dropout)) {
    b.scope("gpt_neox", [&] {
      embed_in_ = Embedding(b, "embed_in", spec.vocab_size, spec.hidden_size);
      for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
        layers_.push_back(b.scope("layers." + std::to_string(i), [&] { return Layer(b, spec, run); }));
      }
      final_layer_norm_ = LayerNorm(b, "final_layer_norm", spec.hidden_size);
      return 0;
    });
    rotary_emb_ = RotaryEmbedding(b, spec.rotary_dim);
    rotary_emb_.initialize(b).reset();
    build_head(b, embed_in_,
               {.width = spec.hidden_size,
                .vocabulary = spec.vocab_size,
                .labels = spec.num_labels,
                .tied = spec.tie_word_embeddings});
  }

 private:
  [[nodiscard]] Tensor decode(const Batch& batch, KeyValueCache* cache) const override {
    Tensor inputs_embeds = embed_in_(batch.input_ids);
    Tensor position_ids = position_ids_of(batch, inputs_embeds);
    Tensor causal_mask = create_causal_mask(run_, inputs_embeds, batch, cache);
    Tensor hidden_states = dropout(inputs_embeds, hidden_dropout_);
    RotaryPositions positions = rotary_emb_.forward(hidden_states, position_ids);
    for (const Layer& layer : layers_) {
      hidden_states = checkpointed(
          run_, {hidden_states}, {causal_mask, position_ids, positions.cos, positions.sin},
          [&layer, cache](const KeptTensors& kept) {
            return layer.forward(kept[0], {kept[3], kept[4]}, kept[1], cache);
          },
          cache);
    }
    hidden_states = final_layer_norm_(hidden_states);
    drop(position_ids, inputs_embeds, causal_mask, positions.cos, positions.sin);
    return hidden_states;
  }

  double hidden_dropout_;
  Embedding embed_in_;
  std::vector<Layer> layers_;
  LayerNorm final_layer_norm_;
  RotaryEmbedding rotary_emb_;
};

}  // namespace

std::unique_ptr<Model> build_gpt_neox(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<GptNeoxForCausalLm>(architecture.as<GptNeoxSpec>(), run, builder);
}

}  // namespace memcalc
