// BART: transformers models/bart/modeling_bart.py.
// MIRRORS(transformers, "models/bart/modeling_bart.py", "5.17.0")
#include <optional>

#include "memcalc/families/bart/conditional_generation.h"
#include "memcalc/families/bart/spec.h"
#include "memcalc/models/encoder_decoder.h"
#include "memcalc/models/encoder_parts.h"
#include "memcalc/models/hooked_module.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

constexpr std::int64_t kPositionOffset = 2;  // BartLearnedPositionalEmbedding.offset

struct BartLayer : Seq2SeqLayer {
  bool norm_before;

  BartLayer(ModuleBuilder& b, const BartSpec& spec, const RunSpec& run, bool decoder, bool norm_before)
      : Seq2SeqLayer(b, spec, run, decoder, /*is_whisper=*/false), norm_before(norm_before) {}

  /// kept: hidden states, mask, and of a decoder the encoder's hidden states and mask.
  [[nodiscard]] Tensor forward(const KeptTensors& kept, EncoderDecoderCache* cache) const {
    if (norm_before) return forward_norm_before(kept[0], kept[1], kept[2], kept[3], cache);
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
  std::optional<LayerNorm> layernorm_embedding, layer_norm;
  double dropout_p;
  BartPlan plan;

  BartStack(ModuleBuilder& b, const BartSpec& spec, const RunSpec& run, const BartPlan& plan, const Tensor& shared,
            bool decoder)
      : replaced_embedding(replaced_by(b, shared)),
        embed_positions(position_table(b, spec, plan)),
        dropout_p(dropout_probability(run, spec.dropout)),
        plan(plan) {
    const std::int64_t count = decoder ? spec.decoder_layers : spec.encoder_layers;
    for (std::int64_t i = 0; i < count; ++i) {
      layers.push_back(
          b.scope("layers." + std::to_string(i), [&] { return BartLayer(b, spec, run, decoder, plan.norm_before); }));
    }
    if (plan.embedding_norm) layernorm_embedding = LayerNorm(b, "layernorm_embedding", spec.d_model);
    if (plan.last_norm) layer_norm = LayerNorm(b, "layer_norm", spec.d_model);
    // _init_weights makes what is no parameter once more, and copies it.
    if (plan.positions == BartPositions::kSinusoid) create_weight(embed_positions.weight);
    if (plan.positions == BartPositions::kOfTokens) sinusoids(b, spec).reset();
  }

  /// PegasusSinusoidalPositionalEmbedding.create_weight, Marian's: what comes from the host into some columns goes by a
  /// contiguous tensor of their size (native/cuda/Copy.cu).
  static void create_weight(const Tensor& weight) {
    const Tensor out = no_grad::empty_like(weight);
    const std::int64_t cosines = weight.size(1) / 2;
    for (const std::int64_t columns : {weight.size(1) - cosines, cosines}) {
      no_grad::zeros(weight.tape(), {weight.size(0), columns}, weight.dtype()).reset();
    }
  }

  /// M2M100SinusoidalPositionalEmbedding.get_embedding
  [[nodiscard]] static Tensor sinusoids(ModuleBuilder& b, const BartSpec& spec) {
    const std::int64_t rows = spec.max_position_embeddings + kPositionOffset, half = spec.d_model / 2;
    const auto numbers = [&](std::int64_t count) {
      return no_grad::to(no_grad::arange(b.tape, count), DType::kFloat32);
    };
    Tensor emb = no_grad::exponential(no_grad::multiply(numbers(half)));
    emb = no_grad::multiply(no_grad::view(numbers(rows), {rows, 1}), no_grad::view(emb, {1, half}));
    {
      Tensor sine = no_grad::sine(emb);
      Tensor cosine = no_grad::cosine(emb);
      emb = no_grad::cat(std::move(sine), std::move(cosine), 1);
    }
    return no_grad::to(std::move(emb), b.dtype);
  }

  [[nodiscard]] static Embedding position_table(ModuleBuilder& b, const BartSpec& spec, const BartPlan& plan) {
    const std::int64_t rows = spec.max_position_embeddings;
    if (plan.positions == BartPositions::kLearned) return {b, "embed_positions", rows + kPositionOffset, spec.d_model};
    Embedding table;
    if (plan.positions == BartPositions::kSinusoid) {
      table.weight = b.frozen_parameter("embed_positions.weight", {rows, spec.d_model});
      b.parameters.back().is_embedding = true;
    } else {
      table.weight = b.computed_buffer(sinusoids(b, spec));
      b.tape.memory.set_category(table.weight.block(), Category::kWeights);
    }
    return table;
  }

  /// BartScaledWordEmbedding multiplies in the module, even by 1; Pegasus and Marian what their module returned.
  [[nodiscard]] Tensor embed(const Embedding& shared, const Tensor& ids) const {
    if (plan.positions == BartPositions::kSinusoid) return multiply_scalar(shared(ids));
    Tensor scaled = hooked_module(shared, {&shared.weight}, ids, [&](const Tensor& hooked_ids) {
      return multiply_scalar(embedding(shared.weight, hooked_ids));
    });
    Tape& tape = scaled.tape();
    if (shared.output_requires_grad && tape.modes.grad_enabled && !scaled.requires_grad()) {
      tape.autograd.require_gradient(scaled);
    }
    return scaled;
  }

  /// Of `position_ids`; M2M-100's are counted from the tokens `ids`.
  [[nodiscard]] Tensor positions(const Tensor& position_ids, const Tensor& ids) const {
    if (plan.positions == BartPositions::kLearned) return learned(position_ids);
    const NoGrad no_grad(embed_positions.weight.tape().modes);
    if (plan.positions == BartPositions::kSinusoid) return embed_positions(position_ids);
    const Tensor of_tokens = positions_of_tokens(ids, /*adds_past=*/true);
    Tensor rows = index_select(embed_positions.weight, 0, view(of_tokens, {-1}));
    return view(rows, {ids.size(0), ids.size(1), rows.size(1)});
  }

  /// BartLearnedPositionalEmbedding.forward. `position_ids`: undefined: the module makes them itself, for every
  /// sequence of `ids`.
  [[nodiscard]] Tensor learned(const Tensor& position_ids, const Tensor& ids = {}) const {
    const Tensor& given = position_ids.defined() ? position_ids : ids;
    return hooked_module(embed_positions, {&embed_positions.weight}, given, [&](const Tensor& hooked) {
      if (position_ids.defined()) return embedding(embed_positions.weight, no_grad::add(hooked));
      const Tensor range = expand(no_grad::arange(hooked.tape(), hooked.size(1)), hooked.shape());
      return embedding(embed_positions.weight, no_grad::add(range));
    });
  }

  /// The encoder's, whose module makes the position ids by itself.
  [[nodiscard]] Tensor positions_of_encoder(const Tensor& ids) const {
    if (plan.positions == BartPositions::kLearned) return learned({}, ids);
    if (plan.positions == BartPositions::kOfTokens) return positions({}, ids);
    const Tensor range = no_grad::arange(ids.tape(), ids.size(1));
    return positions(range, ids);
  }

  [[nodiscard]] Tensor embeddings(const Tensor& inputs_embeds, const Tensor& position_embeds) const {
    Tensor hidden_states = inputs_embeds + position_embeds;
    if (layernorm_embedding) hidden_states = (*layernorm_embedding)(hidden_states);
    hidden_states = dropout(hidden_states, dropout_p);
    return hidden_states;
  }

  [[nodiscard]] Tensor encode(const RunSpec& run, const Embedding& shared, const Batch& batch) const {
    Tensor inputs_embeds = embed(shared, batch.input_ids);
    Tensor embed_pos = positions_of_encoder(batch.input_ids);
    Tensor hidden_states = embeddings(inputs_embeds, embed_pos);
    Tensor attention_mask = create_bidirectional_mask(run, inputs_embeds, batch);
    for (const BartLayer& layer : layers) {
      hidden_states = checkpointed(run, {hidden_states, attention_mask}, {},
                                   [&layer](const KeptTensors& kept) { return layer.forward(kept, nullptr); });
    }
    if (layer_norm) hidden_states = (*layer_norm)(hidden_states);
    drop(attention_mask, inputs_embeds, embed_pos);
    return hidden_states;
  }

  [[nodiscard]] Tensor decode(const RunSpec& run, const Embedding& shared, const Tensor& ids, const Batch& batch,
                              const Tensor& encoder_hidden_states, EncoderDecoderCache* cache) const {
    Tensor inputs_embeds = embed(shared, ids);
    Tape& tape = inputs_embeds.tape();
    Tensor position_ids;
    if (plan.positions == BartPositions::kLearned) position_ids = make_position_ids(tape, inputs_embeds.size(1));
    if (plan.positions == BartPositions::kSinusoid) {
      position_ids = no_grad::add(no_grad::arange(tape, inputs_embeds.size(1)));
    }
    Batch own;  // torch.ones: a mask that masks nothing
    own.padded = false;
    const PastTokens past(cache != nullptr ? &cache->self_attention : nullptr);
    own.attention_mask =
        no_grad::ones(tape, {inputs_embeds.size(0), past.seen + inputs_embeds.size(1)}, DType::kFloat32);
    Tensor causal_mask = create_causal_mask(run, inputs_embeds, own, past);
    Tensor attention_mask = plan.keeps_mask_of_ones ? own.attention_mask : Tensor();
    own.clear();
    Tensor encoder_attention_mask = create_bidirectional_mask(run, inputs_embeds, batch, encoder_hidden_states);
    Tensor position_embeds = positions(position_ids, ids);
    if (plan.overwrites_position_ids) position_ids = std::move(position_embeds);
    const Tensor& embedded_positions = plan.overwrites_position_ids ? position_ids : position_embeds;
    Tensor hidden_states = embeddings(inputs_embeds, embedded_positions);
    for (const BartLayer& layer : layers) {
      hidden_states = checkpointed(
          run, {hidden_states, causal_mask, encoder_hidden_states}, {encoder_attention_mask},
          [&layer, cache](const KeptTensors& kept) { return layer.forward(kept, cache); }, cache);
    }
    if (layer_norm) hidden_states = (*layer_norm)(hidden_states);
    if (!plan.keeps_mask_of_ones) attention_mask = std::move(causal_mask);
    drop(attention_mask, encoder_attention_mask, inputs_embeds, position_ids, causal_mask, position_embeds);
    return hidden_states;
  }
};

class BartForConditionalGeneration : public Model {
 public:
  BartForConditionalGeneration(const BartSpec& spec, const RunSpec& run, ModuleBuilder& b, const BartPlan& plan)
      : spec_(spec), run_(run), plan_(plan) {
    check_activation_function(spec.activation_function);
    is_encoder_decoder = true;
    b.scope("model", [&] {
      shared_ = Embedding(b, "shared", spec.vocab_size, spec.d_model);
      encoder_.push_back(b.scope("encoder", [&] { return BartStack(b, spec, run, plan, shared_.weight, false); }));
      decoder_.push_back(b.scope("decoder", [&] { return BartStack(b, spec, run, plan, shared_.weight, true); }));
      return 0;
    });
    drop(encoder_[0].replaced_embedding, decoder_[0].replaced_embedding);  // tied by BartModel's post_init
    if (plan.logits_bias) final_logits_bias_ = b.buffer({1, spec.vocab_size}, b.dtype);
    if (spec.tie_word_embeddings) {
      Tensor replaced = replaced_by(b, shared_.weight);
      lm_head_.weight = shared_.weight;
    } else {
      lm_head_ = Linear(b, "lm_head", spec.d_model, spec.vocab_size, false);
    }
  }

  /// With labels there is no KV cache ("The `use_cache` argument is changed to `False` since `labels` is provided"),
  /// but in M2M-100.
  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    ModelOutput output;
    const bool caches = !batch.labels.defined() || plan_.caches_with_labels;
    Tensor decoder_input_ids = decoder_input_ids_of(batch, plan_.wraps_labels ? wrap_last_to_front : shift_right);
    output.encoder_last_hidden_state = batch.encoder_outputs.defined() ? batch.encoder_outputs : encode(batch);
    EncoderDecoderCache* const cache = caches ? cache_of(run_, batch, output) : nullptr;
    record_copied_configurations(shared_.weight.tape(), cache, output, 2);
    Tensor last_hidden_state =
        decoder_[0].decode(run_, shared_, decoder_input_ids, batch, output.encoder_last_hidden_state, cache);
    if (!batch.labels.defined()) decoder_input_ids.reset();  // BartModel.forward made them
    const auto logits_of = [this](const Tensor& states) {
      Tensor logits = lm_head_(states);
      if (plan_.logits_bias) logits = logits + final_logits_bias_;
      return logits;
    };
    predict_tokens(last_hidden_state, batch, spec_.vocab_size, logits_of, output);
    drop(decoder_input_ids, last_hidden_state);
    return output;
  }

  [[nodiscard]] Tensor encode(const Batch& batch) override { return encoder_[0].encode(run_, shared_, batch); }

 private:
  BartSpec spec_;
  RunSpec run_;
  BartPlan plan_;
  Embedding shared_;
  std::vector<BartStack> encoder_, decoder_;  // one each
  Tensor final_logits_bias_;
  Linear lm_head_;
};

}  // namespace

std::unique_ptr<Model> build_bart(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return build_bart(architecture.as<BartSpec>(), run, builder, {});
}

std::unique_ptr<Model> build_bart(const BartSpec& spec, const RunSpec& run, ModuleBuilder& builder,
                                  const BartPlan& plan) {
  return std::make_unique<BartForConditionalGeneration>(spec, run, builder, plan);
}

}  // namespace memcalc
