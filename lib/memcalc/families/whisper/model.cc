// Whisper: transformers models/whisper/modeling_whisper.py.
// MIRRORS(transformers, "models/whisper/modeling_whisper.py", "5.17.0")
#include "memcalc/families/whisper/spec.h"
#include "memcalc/models/encoder_decoder.h"
#include "memcalc/symbolic/ops/conv1d.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

constexpr std::int64_t kFramesPerPosition = 2;  // the stride of the second convolution

struct WhisperLayer : Seq2SeqLayer {
  WhisperLayer(ModuleBuilder& b, const WhisperSpec& spec, const RunSpec& run, bool decoder)
      : Seq2SeqLayer(b, spec, run, decoder, /*is_whisper=*/true) {}

  /// kept: hidden states, and of a decoder its mask and the encoder's hidden states.
  [[nodiscard]] Tensor forward(const KeptTensors& kept, EncoderDecoderCache* cache) const {
    if (!is_decoder) return forward_norm_before(kept[0], {}, {}, {}, cache);
    return forward_norm_before(kept[0], kept[1], kept[2], {}, cache);
  }
};

struct WhisperEncoder {
  Tensor conv1_weight, conv1_bias, conv2_weight, conv2_bias, embed_positions;
  std::vector<WhisperLayer> layers;
  LayerNorm layer_norm;
  double dropout_p;

  WhisperEncoder(ModuleBuilder& b, const WhisperSpec& spec, const RunSpec& run)
      : conv1_weight(b.parameter("conv1.weight", {spec.d_model, spec.num_mel_bins, 3})),
        conv1_bias(b.parameter("conv1.bias", {spec.d_model}, false)),
        conv2_weight(b.parameter("conv2.weight", {spec.d_model, spec.d_model, 3})),
        conv2_bias(b.parameter("conv2.bias", {spec.d_model}, false)),
        embed_positions(b.frozen_parameter("embed_positions.weight", {spec.max_source_positions, spec.d_model})),
        dropout_p(dropout_probability(run, spec.dropout)) {
    for (std::int64_t i = 0; i < spec.encoder_layers; ++i) {
      layers.push_back(b.scope("layers." + std::to_string(i), [&] { return WhisperLayer(b, spec, run, false); }));
    }
    layer_norm = LayerNorm(b, "layer_norm", spec.d_model);
    initialise_positions(b.tape);
  }

  /// _init_weights: sinusoids(length, channels), copied into the positions.
  void initialise_positions(Tape& tape) const {
    const std::int64_t length = embed_positions.size(0);
    const std::int64_t half = embed_positions.size(1) / 2;
    Tensor inv_timescales = no_grad::exponential(no_grad::multiply(no_grad::arange(tape, half), DType::kFloat32));
    Tensor scaled_time = no_grad::multiply(no_grad::view(no_grad::arange(tape, length), {length, 1}),
                                           no_grad::view(inv_timescales, {1, half}));
    Tensor sine = no_grad::sine(scaled_time);
    Tensor cosine = no_grad::cosine(scaled_time);
    Tensor result = no_grad::cat(std::move(sine), std::move(cosine), 1);
    drop(inv_timescales, scaled_time, result);
  }

  [[nodiscard]] Tensor forward(const RunSpec& run, const Tensor& input_features) const {
    Tensor inputs_embeds = gelu(conv1d(input_features, conv1_weight, conv1_bias, 1, 1));
    inputs_embeds = gelu(conv1d(inputs_embeds, conv2_weight, conv2_bias, kFramesPerPosition, 1));
    inputs_embeds = transpose(inputs_embeds, 1, 2);  // permute(0, 2, 1)
    Tensor all_positions = no_grad::arange(input_features.tape(), embed_positions.size(0));
    Tensor hidden_states = inputs_embeds + embedding(embed_positions, all_positions);
    hidden_states = dropout(hidden_states, dropout_p);
    for (const WhisperLayer& layer : layers) {
      hidden_states = checkpointed(run, {hidden_states}, {},
                                   [&layer](const KeptTensors& kept) { return layer.forward(kept, nullptr); });
    }
    hidden_states = layer_norm(hidden_states);
    drop(inputs_embeds, all_positions);
    return hidden_states;
  }
};

struct WhisperDecoder {
  Embedding embed_tokens, embed_positions;
  std::vector<WhisperLayer> layers;
  LayerNorm layer_norm;
  double dropout_p;

  WhisperDecoder(ModuleBuilder& b, const WhisperSpec& spec, const RunSpec& run)
      : embed_tokens(b, "embed_tokens", spec.vocab_size, spec.d_model),
        embed_positions(b, "embed_positions", spec.max_position_embeddings, spec.d_model),
        dropout_p(dropout_probability(run, spec.dropout)) {
    for (std::int64_t i = 0; i < spec.decoder_layers; ++i) {
      layers.push_back(b.scope("layers." + std::to_string(i), [&] { return WhisperLayer(b, spec, run, true); }));
    }
    layer_norm = LayerNorm(b, "layer_norm", spec.d_model);
  }

  [[nodiscard]] Tensor forward(const RunSpec& run, const Tensor& ids, const Tensor& encoder_hidden_states,
                               EncoderDecoderCache* cache) const {
    Tensor inputs_embeds = embed_tokens(ids);
    Tensor position_ids = make_position_ids(inputs_embeds.tape(), inputs_embeds.size(1));
    Tensor cache_position;
    if (inputs_embeds.tape().behaviors.cache_positions) cache_position = position_ids;
    position_ids = no_grad::repeat(position_ids, {inputs_embeds.size(0), 1});
    Tensor positions = view(index_rows(embed_positions.weight, position_ids), inputs_embeds.shape());
    Tensor hidden_states = inputs_embeds + positions;
    hidden_states = dropout(hidden_states, dropout_p);
    Tensor causal_mask =
        create_causal_mask(run, inputs_embeds, unmasked(), cache != nullptr ? &cache->self_attention : nullptr);
    for (const WhisperLayer& layer : layers) {
      hidden_states = checkpointed(
          run, {hidden_states, causal_mask, encoder_hidden_states}, {},
          [&layer, cache](const KeptTensors& kept) { return layer.forward(kept, cache); }, cache);
    }
    hidden_states = layer_norm(hidden_states);
    drop(cache_position, inputs_embeds, position_ids, positions, causal_mask);
    return hidden_states;
  }
};

class WhisperForConditionalGeneration : public Model {
 public:
  WhisperForConditionalGeneration(const WhisperSpec& spec, const RunSpec& run, ModuleBuilder& b)
      : spec_(spec), run_(run) {
    check_activation_function(spec.activation_function);
    is_encoder_decoder = true;
    input_features = {spec.num_mel_bins, kFramesPerPosition * spec.max_source_positions};
    not_modelled.emplace_back(
        "which engines cuDNN picks for the two convolutions: their workspaces are those measured on an H200 over 3,000 "
        "frames (13 batch sizes, neighbours between them)");
    b.scope("model", [&] {
      encoder_.push_back(b.scope("encoder", [&] { return WhisperEncoder(b, spec, run); }));
      decoder_.push_back(b.scope("decoder", [&] { return WhisperDecoder(b, spec, run); }));
      return 0;
    });
    if (spec.tie_word_embeddings) {
      Tensor replaced = replaced_by(b, decoder_[0].embed_tokens.weight);
      proj_out_.weight = decoder_[0].embed_tokens.weight;
    } else {
      proj_out_ = Linear(b, "proj_out", spec.d_model, spec.vocab_size, false);
    }
  }

  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    ModelOutput output;
    Tensor decoder_input_ids = decoder_input_ids_of(batch);
    output.encoder_last_hidden_state = batch.encoder_outputs.defined() ? batch.encoder_outputs : encode(batch);
    EncoderDecoderCache* const cache = cache_of(run_, batch, output);
    record_copied_configurations(decoder_input_ids.tape(), cache, output, 3);
    Tensor last_hidden_state = decoder_[0].forward(run_, decoder_input_ids, output.encoder_last_hidden_state, cache);
    predict_tokens(
        last_hidden_state, batch, spec_.vocab_size, [this](const Tensor& states) { return proj_out_(states); }, output);
    drop(decoder_input_ids, last_hidden_state);
    return output;
  }

  [[nodiscard]] Tensor encode(const Batch& batch) override { return encoder_[0].forward(run_, batch.input_features); }

 private:
  WhisperSpec spec_;
  RunSpec run_;
  std::vector<WhisperEncoder> encoder_;  // one
  std::vector<WhisperDecoder> decoder_;  // one
  Linear proj_out_;
};

}  // namespace

std::unique_ptr<Model> build_whisper(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<WhisperForConditionalGeneration>(architecture.as<WhisperSpec>(), run, builder);
}

}  // namespace memcalc
