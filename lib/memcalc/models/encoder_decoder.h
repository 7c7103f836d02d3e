// What transformers' encoder-decoder models share (T5, BART, Whisper).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "memcalc/families/bart/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/model.h"

namespace memcalc {

/// BartAttention and WhisperAttention: of a decoder's tokens, or with `key_value_states` over the encoder's.
struct Seq2SeqAttention {
  Linear k_proj, v_proj, q_proj, out_proj;
  std::int64_t head_dim = 0;
  bool is_whisper = false;  // scales the query itself, and copies all three to row-major heads
  AttentionOptions options;

  struct Config {
    std::int64_t width, heads;
    bool is_whisper;
  };

  Seq2SeqAttention() = default;
  Seq2SeqAttention(ModuleBuilder& b, const Config& config, const AttentionOptions& options);

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const Tensor& key_value_states, const Tensor& mask,
                                        KeyValueCache* cache) const;
};

/// fc1, activation, fc2 of both families' layers, with their two dropouts.
struct Seq2SeqFeedForward {
  Linear fc1, fc2;
  std::string activation;
  double activation_dropout_p = 0;
  double dropout_p = 0;

  Seq2SeqFeedForward() = default;
  Seq2SeqFeedForward(ModuleBuilder& b, const BartSpec& spec, const RunSpec& run, std::int64_t ffn_dim);

  /// Written out in the layers' own forward, so the caller's variable is assigned as soon as it was read.
  [[nodiscard]] Tensor forward(Tensor hidden_states) const;
};

/// What a layer of BART and one of Whisper hold, in this order; their forwards differ in where they normalise.
struct Seq2SeqLayer {
  Seq2SeqAttention self_attn;
  LayerNorm self_attn_layer_norm;
  bool is_decoder;
  Seq2SeqAttention encoder_attn;  // of a decoder
  LayerNorm encoder_attn_layer_norm;
  Seq2SeqFeedForward feed_forward;
  LayerNorm final_layer_norm;
  double dropout_p;

  Seq2SeqLayer(ModuleBuilder& b, const BartSpec& spec, const RunSpec& run, bool decoder, bool is_whisper);

  /// WhisperEncoderLayer and WhisperDecoderLayer, MBartEncoderLayer and MBartDecoderLayer: a norm before each part.
  [[nodiscard]] Tensor forward_norm_before(const Tensor& input, const Tensor& mask, const Tensor& encoder_hidden_states,
                                           const Tensor& encoder_mask, EncoderDecoderCache* cache) const;
};

/// shift_tokens_right: the decoder's input ids from the labels.
[[nodiscard]] Tensor shift_right(const Tensor& labels);
/// mBART's shift_tokens_right: the last token that is not padding becomes the first.
[[nodiscard]] Tensor wrap_last_to_front(const Tensor& labels);
/// The batch's own, or the labels shifted; without labels BART shifts its input instead.
[[nodiscard]] Tensor decoder_input_ids_of(const Batch& batch, Tensor (*shift)(const Tensor& labels) = shift_right);

/// Where the forward pass makes its cache itself: each DynamicCache(config=...) asks for the decoder's configuration,
/// and of a model that has an encoder, too, that is a deep copy (configuration_utils.py, get_text_config). generate()
/// makes its cache before the pass.
void record_copied_configurations(Tape& tape, const EncoderDecoderCache* cache, const ModelOutput& output, int copies);

/// A batch without a mask: a decoder whose own tokens have no padding mask.
[[nodiscard]] inline const Batch& unmasked() {
  static const Batch batch;
  return batch;
}

/// What tie_weights replaces by `tied`: made, and gone when the model is complete.
[[nodiscard]] Tensor replaced_by(ModuleBuilder& builder, const Tensor& tied);

/// Loss and logits of BartForConditionalGeneration and WhisperForConditionalGeneration, from the decoder's states and
/// what makes logits of them. Where LayerDrop breaks the model's graph they are a graph of their own (compiled_head).
void predict_tokens(const Tensor& hidden_states, const Batch& batch, std::int64_t vocab_size,
                    const std::function<Tensor(const Tensor&)>& logits_of, ModelOutput& output);

}  // namespace memcalc
