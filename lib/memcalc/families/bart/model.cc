// BART: transformers models/bart/modeling_bart.py.
// MIRRORS(transformers, "models/bart/modeling_bart.py", "5.17.0")
#include "memcalc/families/bart/spec.h"
#include "memcalc/models/encoder_decoder.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

constexpr std::int64_t kPositionOffset = 2;  // BartLearnedPositionalEmbedding.offset

struct BartLayer : Seq2SeqLayer {
  BartLayer(ModuleBuilder& b, const BartSpec& spec, const RunSpec& run, bool decoder)
      : Seq2SeqLayer(b, spec, run, decoder, /*is_whisper=*/false) {}

  /// kept: hidden states, mask, and of a decoder the encoder's hidden states and mask.
  [[nodiscard]] Tensor forward(const KeptTensors& kept, EncoderDecoderCache* cache) const {
    Tensor residual = kept[0];
    AttentionResult attended =
        self_attn.forward(kept[0], {}, kept[1], cache != nullptr ? &cache->self_attention : nullptr);
    Tensor hidden_states = std::move(attended.output);
    hidden_states = dropout(hidden_states, dropout_p);
    hidden_states = residual + hidden_states;
    hidden_states = self_attn_layer_norm(hidden_states);
    residual = hidden_states;
    if (is_decoder) {
      AttentionResult crossed =
          encoder_attn.forward(hidden_states, kept[2], kept[3], cache != nullptr ? &cache->cross_attention : nullptr);
      hidden_states = std::move(crossed.output);
      attended.weights = std::move(crossed.weights);
      hidden_states = dropout(hidden_states, dropout_p);
      hidden_states = residual + hidden_states;
      hidden_states = encoder_attn_layer_norm(hidden_states);
      residual = hidden_states;
    }
    hidden_states = feed_forward.forward(std::move(hidden_states));
    hidden_states = residual + hidden_states;
    hidden_states = final_layer_norm(hidden_states);
    if (!is_decoder && hidden_states.dtype() == DType::kFloat16) look_for_infinities(hidden_states);
    drop(residual, attended.weights);
    return hidden_states;
  }

  /// torch.isfinite(x).all()
  static void look_for_infinities(const Tensor& x) { no_grad::all(no_grad::isfinite(x)).reset(); }
};

/// BartEncoder and BartDecoder.
struct BartStack {
  Tensor replaced_embedding;
  Embedding embed_positions;
  std::vector<BartLayer> layers;
  LayerNorm layernorm_embedding;
  double dropout_p;

  BartStack(ModuleBuilder& b, const BartSpec& spec, const RunSpec& run, const Tensor& shared, bool decoder)
      : replaced_embedding(replaced_by(b, shared)),
        embed_positions(b, "embed_positions", spec.max_position_embeddings + kPositionOffset, spec.d_model),
        dropout_p(dropout_probability(run, spec.dropout)) {
    const std::int64_t count = decoder ? spec.decoder_layers : spec.encoder_layers;
    for (std::int64_t i = 0; i < count; ++i) {
      layers.push_back(b.scope("layers." + std::to_string(i), [&] { return BartLayer(b, spec, run, decoder); }));
    }
    layernorm_embedding = LayerNorm(b, "layernorm_embedding", spec.d_model);
  }

  /// BartScaledWordEmbedding: multiplies even by 1.
  [[nodiscard]] static Tensor embed(const Embedding& shared, const Tensor& ids) { return multiply_scalar(shared(ids)); }

  [[nodiscard]] Tensor positions(const Tensor& position_ids) const {
    return embed_positions(no_grad::add(position_ids));
  }

  [[nodiscard]] Tensor embeddings(const Tensor& inputs_embeds, const Tensor& position_embeds) const {
    Tensor hidden_states = inputs_embeds + position_embeds;
    hidden_states = layernorm_embedding(hidden_states);
    hidden_states = dropout(hidden_states, dropout_p);
    return hidden_states;
  }

  [[nodiscard]] Tensor encode(const RunSpec& run, const Embedding& shared, const Batch& batch) const {
    Tensor inputs_embeds = embed(shared, batch.input_ids);
    Tensor embed_pos;
    {
      const Tensor range = no_grad::arange(inputs_embeds.tape(), inputs_embeds.size(1));
      embed_pos = positions(expand(range, {inputs_embeds.size(0), inputs_embeds.size(1)}));
    }
    Tensor hidden_states = embeddings(inputs_embeds, embed_pos);
    Tensor attention_mask = create_bidirectional_mask(run, inputs_embeds, batch);
    for (const BartLayer& layer : layers) {
      hidden_states = checkpointed(run, {hidden_states, attention_mask}, {},
                                   [&layer](const KeptTensors& kept) { return layer.forward(kept, nullptr); });
    }
    drop(attention_mask, inputs_embeds, embed_pos);
    return hidden_states;
  }

  [[nodiscard]] Tensor decode(const RunSpec& run, const Embedding& shared, const Tensor& ids, const Batch& batch,
                              const Tensor& encoder_hidden_states, EncoderDecoderCache* cache) const {
    Tensor inputs_embeds = embed(shared, ids);
    Tape& tape = inputs_embeds.tape();
    Tensor position_ids = make_position_ids(tape, inputs_embeds.size(1));
    Batch own;  // torch.ones: a mask that masks nothing
    own.padded = false;
    const PastTokens past(cache != nullptr ? &cache->self_attention : nullptr);
    own.attention_mask =
        no_grad::ones(tape, {inputs_embeds.size(0), past.seen + inputs_embeds.size(1)}, DType::kFloat32);
    Tensor attention_mask = create_causal_mask(run, inputs_embeds, own, past);
    own.clear();
    Tensor encoder_attention_mask = create_bidirectional_mask(run, inputs_embeds, batch, encoder_hidden_states);
    Tensor position_embeds = positions(position_ids);
    Tensor hidden_states = embeddings(inputs_embeds, position_embeds);
    for (const BartLayer& layer : layers) {
      hidden_states = checkpointed(
          run, {hidden_states, attention_mask, encoder_hidden_states}, {encoder_attention_mask},
          [&layer, cache](const KeptTensors& kept) { return layer.forward(kept, cache); }, cache);
    }
    drop(attention_mask, encoder_attention_mask, inputs_embeds, position_ids, position_embeds);
    return hidden_states;
  }
};

class BartForConditionalGeneration : public Model {
 public:
  BartForConditionalGeneration(const BartSpec& spec, const RunSpec& run, ModuleBuilder& b) : spec_(spec), run_(run) {
    check_activation_function(spec.activation_function);
    is_encoder_decoder = true;
    b.scope("model", [&] {
      shared_ = Embedding(b, "shared", spec.vocab_size, spec.d_model);
      encoder_.push_back(b.scope("encoder", [&] { return BartStack(b, spec, run, shared_.weight, false); }));
      decoder_.push_back(b.scope("decoder", [&] { return BartStack(b, spec, run, shared_.weight, true); }));
      return 0;
    });
    drop(encoder_[0].replaced_embedding, decoder_[0].replaced_embedding);  // tied by BartModel's post_init
    final_logits_bias_ = b.buffer({1, spec.vocab_size}, b.dtype);
    if (spec.tie_word_embeddings) {
      Tensor replaced = replaced_by(b, shared_.weight);
      lm_head_.weight = shared_.weight;
    } else {
      lm_head_ = Linear(b, "lm_head", spec.d_model, spec.vocab_size, false);
    }
  }

  /// With labels there is no KV cache ("The `use_cache` argument is changed to `False` since `labels` is provided").
  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    ModelOutput output;
    Tensor decoder_input_ids = decoder_input_ids_of(batch);
    output.encoder_last_hidden_state = batch.encoder_outputs.defined() ? batch.encoder_outputs : encode(batch);
    Tensor last_hidden_state =
        decoder_[0].decode(run_, shared_, decoder_input_ids, batch, output.encoder_last_hidden_state,
                           batch.labels.defined() ? nullptr : cache_of(run_, batch, output));
    if (!batch.labels.defined()) decoder_input_ids.reset();  // BartModel.forward made them
    output.logits = lm_head_(last_hidden_state);
    output.logits = output.logits + final_logits_bias_;
    if (batch.labels.defined()) {
      output.loss = cross_entropy(view(output.logits, {-1, spec_.vocab_size}), view(batch.labels, {-1}));
    }
    drop(decoder_input_ids, last_hidden_state);
    return output;
  }

  [[nodiscard]] Tensor encode(const Batch& batch) override { return encoder_[0].encode(run_, shared_, batch); }

 private:
  BartSpec spec_;
  RunSpec run_;
  Embedding shared_;
  std::vector<BartStack> encoder_, decoder_;  // one each
  Tensor final_logits_bias_;
  Linear lm_head_;
};

}  // namespace

std::unique_ptr<Model> build_bart(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<BartForConditionalGeneration>(architecture.as<BartSpec>(), run, builder);
}

}  // namespace memcalc
