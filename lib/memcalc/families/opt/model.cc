// OPT: transformers models/opt/modeling_opt.py.
// MIRRORS(transformers, "models/opt/modeling_opt.py", "5.17.0")
#include "memcalc/families/opt/spec.h"
#include "memcalc/models/decoder_model.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

constexpr std::int64_t kPositionOffset = 2;  // OPTLearnedPositionalEmbedding.offset

struct DecoderLayer {
  Linear k_proj, v_proj, q_proj, out_proj;
  LayerNorm self_attn_layer_norm;
  Linear fc1, fc2;
  LayerNorm final_layer_norm;
  std::int64_t head_dim;
  double hidden_dropout;
  bool norm_before;
  std::string activation_fn;
  AttentionOptions options;

  DecoderLayer(ModuleBuilder& b, const OptSpec& spec, const RunSpec& run)
      : k_proj(b, "self_attn.k_proj", spec.hidden_size, spec.hidden_size, spec.enable_bias),
        v_proj(b, "self_attn.v_proj", spec.hidden_size, spec.hidden_size, spec.enable_bias),
        q_proj(b, "self_attn.q_proj", spec.hidden_size, spec.hidden_size, spec.enable_bias),
        out_proj(b, "self_attn.out_proj", spec.hidden_size, spec.hidden_size, spec.enable_bias),
        self_attn_layer_norm(b, "self_attn_layer_norm", spec.hidden_size),
        fc1(b, "fc1", spec.hidden_size, spec.ffn_dim, spec.enable_bias),
        fc2(b, "fc2", spec.ffn_dim, spec.hidden_size, spec.enable_bias),
        final_layer_norm(b, "final_layer_norm", spec.hidden_size),
        head_dim(spec.hidden_size / spec.num_attention_heads),
        hidden_dropout(dropout_probability(run, spec.dropout)),
        norm_before(spec.do_layer_norm_before),
        activation_fn(spec.activation_function),
        options(causal_attention(run, spec.attention_dropout)) {}

  [[nodiscard]] AttentionResult self_attn(const Tensor& hidden_states, const Tensor& mask, KeyValueCache* cache) const {
    const Shape shape{hidden_states.size(0), hidden_states.size(1), -1, head_dim};
    Tensor query_states = multiply_scalar(q_proj(hidden_states));
    query_states = transpose(view(query_states, shape), 1, 2);
    Tensor key_states = k_proj(hidden_states);
    Tensor value_states = v_proj(hidden_states);
    key_states = transpose(view(key_states, shape), 1, 2);
    value_states = transpose(view(value_states, shape), 1, 2);
    if (cache != nullptr) cache->update(key_states, value_states);
    AttentionResult result = attention_interface(query_states, key_states, value_states, mask, options);
    result.output = reshape(result.output, hidden_states.shape());
    result.output = out_proj(result.output);
    drop(query_states, key_states, value_states);
    return result;
  }

  [[nodiscard]] Tensor forward(const Tensor& input, const Tensor& mask, KeyValueCache* cache) const {
    Tensor hidden_states = input;
    Tensor residual = hidden_states;
    if (norm_before) hidden_states = self_attn_layer_norm(hidden_states);
    AttentionResult attention = self_attn(hidden_states, mask, cache);
    hidden_states = std::move(attention.output);
    hidden_states = dropout(hidden_states, hidden_dropout);
    hidden_states = residual + hidden_states;
    if (!norm_before) hidden_states = self_attn_layer_norm(hidden_states);

    const Shape hidden_states_shape = hidden_states.shape();
    hidden_states = reshape(hidden_states, {-1, hidden_states.size(-1)});
    residual = hidden_states;
    if (norm_before) hidden_states = final_layer_norm(hidden_states);
    hidden_states = fc1(hidden_states);
    hidden_states = activation_function(activation_fn, hidden_states);
    hidden_states = fc2(hidden_states);
    hidden_states = dropout(hidden_states, hidden_dropout);
    hidden_states = view(residual + hidden_states, hidden_states_shape);
    if (!norm_before) hidden_states = final_layer_norm(hidden_states);
    drop(residual, attention.weights);
    return hidden_states;
  }
};

class OptForCausalLm : public DecoderModel {
 public:
  OptForCausalLm(const OptSpec& spec, const RunSpec& run, ModuleBuilder& b)
      : DecoderModel(run, spec.activation_function) {
    b.scope("model.decoder", [&] {
      embed_tokens_ = Embedding(b, "embed_tokens", spec.vocab_size, spec.word_embed_proj_dim);
      embed_positions_ =
          Embedding(b, "embed_positions", spec.max_position_embeddings + kPositionOffset, spec.hidden_size);
      projects_ = spec.word_embed_proj_dim != spec.hidden_size;
      if (projects_) {
        project_out_ = Linear(b, "project_out", spec.hidden_size, spec.word_embed_proj_dim, false);
        project_in_ = Linear(b, "project_in", spec.word_embed_proj_dim, spec.hidden_size, false);
      }
      has_final_norm_ = spec.do_layer_norm_before && !spec.remove_final_layer_norm;
      if (has_final_norm_) final_layer_norm_ = LayerNorm(b, "final_layer_norm", spec.hidden_size);
      for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
        layers_.push_back(b.scope("layers." + std::to_string(i), [&] { return DecoderLayer(b, spec, run); }));
      }
      return 0;
    });
    build_head(b, embed_tokens_,
               {.width = spec.word_embed_proj_dim,
                .vocabulary = spec.vocab_size,
                .labels = spec.num_labels,
                .tied = spec.tie_word_embeddings});
  }

 private:
  /// (cumsum(attention_mask) * attention_mask - 1).long()
  [[nodiscard]] static Tensor positions_of(const Tensor& attention_mask) {
    Tensor position_ids = no_grad::cumsum(attention_mask, 1);
    Tensor numbered = no_grad::subtract(no_grad::multiply(position_ids, attention_mask));
    Tensor whole = to_dtype(numbered, DType::kInt64);
    drop(numbered, position_ids);
    return whole;
  }

  [[nodiscard]] Tensor learned_positions(const Tensor& position_ids) const {
    return embed_positions_(no_grad::add(position_ids));
  }

  [[nodiscard]] Tensor decode(const Batch& batch, KeyValueCache* cache) const override {
    Tensor inputs_embeds = embed_tokens_(batch.input_ids);
    Tape& tape = inputs_embeds.tape();
    Batch masked = batch;
    if (!batch.attention_mask.defined()) {
      const std::int64_t seen = cache != nullptr ? cache->seen_tokens() : 0;
      const Shape shape{batch.input_ids.size(0), seen + batch.input_ids.size(1)};
      masked.attention_mask = no_grad::ones(tape, shape, DType::kFloat32);
      masked.padded = false;
    }
    Tensor position_ids = batch.position_ids.defined() ? batch.position_ids : positions_of(masked.attention_mask);
    // From 5.18 on the mask that OPT makes itself only numbers the positions.
    const bool reaches_mask = tape.behaviors.opt_mask_of_ones || batch.attention_mask.defined();
    PastTokens past(cache);
    past.cached |= !reaches_mask;  // no position ids are passed: nobody looks for packed sequences
    Tensor causal_mask = create_causal_mask(run_, inputs_embeds, reaches_mask ? masked : batch, past);
    Tensor pos_embeds = learned_positions(position_ids);
    if (projects_) inputs_embeds = project_in_(inputs_embeds);
    Tensor hidden_states = inputs_embeds + pos_embeds;
    for (const DecoderLayer& layer : layers_) {
      hidden_states = checkpointed(
          run_, {hidden_states}, {causal_mask, position_ids},
          [&layer, cache](const KeptTensors& kept) { return layer.forward(kept[0], kept[1], cache); }, cache);
    }
    if (has_final_norm_) hidden_states = final_layer_norm_(hidden_states);
    if (projects_) hidden_states = project_out_(hidden_states);
    masked.clear();
    drop(inputs_embeds, position_ids, causal_mask, pos_embeds);
    return hidden_states;
  }

  bool projects_ = false;
  bool has_final_norm_ = false;
  Embedding embed_tokens_, embed_positions_;
  Linear project_out_, project_in_;
  LayerNorm final_layer_norm_;
  std::vector<DecoderLayer> layers_;
};

}  // namespace

std::unique_ptr<Model> build_opt(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<OptForCausalLm>(architecture.as<OptSpec>(), run, builder);
}

}  // namespace memcalc
