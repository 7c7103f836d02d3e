#include "memcalc/models/encoder_decoder.h"

#include <optional>
#include <utility>

#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

Seq2SeqAttention::Seq2SeqAttention(ModuleBuilder& b, const Config& config, const AttentionOptions& attention_options)
    : k_proj(b, "k_proj", config.width, config.width, !config.is_whisper),
      v_proj(b, "v_proj", config.width, config.width),
      q_proj(b, "q_proj", config.width, config.width),
      out_proj(b, "out_proj", config.width, config.width),
      head_dim(config.width / config.heads),
      is_whisper(config.is_whisper),
      options(attention_options) {}

AttentionResult Seq2SeqAttention::forward(const Tensor& hidden_states, const Tensor& key_value_states,
                                          const Tensor& mask, KeyValueCache* cache) const {
  const auto viewed = [this](Tensor projected) {
    const Shape shape{projected.size(0), projected.size(1), -1, head_dim};
    return transpose(view(std::move(projected), shape), 1, 2);
  };
  const auto heads_of = [&](Tensor projected) {
    Tensor heads = viewed(std::move(projected));
    return is_whisper ? contiguous(std::move(heads)) : heads;
  };
  Tensor query_states = heads_of(is_whisper ? multiply_scalar(q_proj(hidden_states)) : q_proj(hidden_states));
  Tensor key_states, value_states;
  if (key_value_states.defined() && cache != nullptr && cache->is_filled()) {
    cache->read(key_states, value_states);
  } else {
    const Tensor& current_states = key_value_states.defined() ? key_value_states : hidden_states;
    if (is_whisper && hidden_states.tape().behaviors.whisper_projects_first) {
      key_states = viewed(k_proj(current_states));
      value_states = viewed(v_proj(current_states));
      key_states = contiguous(std::move(key_states));
      value_states = contiguous(std::move(value_states));
    } else if (is_whisper) {
      key_states = heads_of(k_proj(current_states));
      value_states = heads_of(v_proj(current_states));
    } else {  // both are projected before they are viewed
      key_states = k_proj(current_states);
      value_states = v_proj(current_states);
      key_states = heads_of(std::move(key_states));
      value_states = heads_of(std::move(value_states));
    }
    if (cache != nullptr) cache->update(key_states, value_states);
  }
  AttentionResult result = attention_interface(query_states, key_states, value_states, mask, options);
  result.output = reshape(result.output, hidden_states.shape());
  result.output = out_proj(result.output);
  drop(query_states, key_states, value_states);
  return result;
}

Seq2SeqFeedForward::Seq2SeqFeedForward(ModuleBuilder& b, const BartSpec& spec, const RunSpec& run, std::int64_t ffn_dim)
    : fc1(b, "fc1", spec.d_model, ffn_dim),
      fc2(b, "fc2", ffn_dim, spec.d_model),
      activation(spec.activation_function),
      activation_dropout_p(dropout_probability(run, spec.activation_dropout)),
      dropout_p(dropout_probability(run, spec.dropout)) {}

Tensor Seq2SeqFeedForward::forward(Tensor hidden_states) const {
  Tensor activated;
  {
    const Tensor widened = fc1(hidden_states);  // on Python's stack, so it dies before the variable is assigned
    activated = activation_function(activation, widened);
  }
  hidden_states = std::move(activated);
  hidden_states = dropout(hidden_states, activation_dropout_p);
  hidden_states = fc2(hidden_states);
  hidden_states = dropout(hidden_states, dropout_p);
  return hidden_states;
}

Seq2SeqLayer::Seq2SeqLayer(ModuleBuilder& b, const BartSpec& spec, const RunSpec& run, bool decoder, bool is_whisper)
    : is_decoder(decoder), dropout_p(dropout_probability(run, spec.dropout)) {
  const std::int64_t heads = decoder ? spec.decoder_attention_heads : spec.encoder_attention_heads;
  AttentionOptions options{.implementation = run.attention,
                           .dropout = dropout_probability(run, spec.attention_dropout)};
  const Seq2SeqAttention::Config config{.width = spec.d_model, .heads = heads, .is_whisper = is_whisper};
  options.causal = decoder;
  self_attn = b.scope("self_attn", [&] { return Seq2SeqAttention(b, config, options); });
  self_attn_layer_norm = LayerNorm(b, "self_attn_layer_norm", spec.d_model);
  if (decoder) {
    options.causal = false;
    encoder_attn = b.scope("encoder_attn", [&] { return Seq2SeqAttention(b, config, options); });
    encoder_attn_layer_norm = LayerNorm(b, "encoder_attn_layer_norm", spec.d_model);
  }
  feed_forward = Seq2SeqFeedForward(b, spec, run, decoder ? spec.decoder_ffn_dim : spec.encoder_ffn_dim);
  final_layer_norm = LayerNorm(b, "final_layer_norm", spec.d_model);
}

Tensor Seq2SeqLayer::forward_norm_before(const Tensor& input, const Tensor& mask, const Tensor& encoder_hidden_states,
                                         const Tensor& encoder_mask, EncoderDecoderCache* cache) const {
  Tensor residual = input;
  Tensor hidden_states = self_attn_layer_norm(input);
  AttentionResult attended =
      self_attn.forward(hidden_states, {}, mask, cache != nullptr ? &cache->self_attention : nullptr);
  hidden_states = std::move(attended.output);
  hidden_states = dropout(hidden_states, dropout_p);
  hidden_states = residual + hidden_states;
  residual = hidden_states;
  if (is_decoder) {
    hidden_states = encoder_attn_layer_norm(hidden_states);
    AttentionResult crossed = encoder_attn.forward(hidden_states, encoder_hidden_states, encoder_mask,
                                                   cache != nullptr ? &cache->cross_attention : nullptr);
    hidden_states = std::move(crossed.output);
    attended.weights = std::move(crossed.weights);
    hidden_states = dropout(hidden_states, dropout_p);
    hidden_states = residual + hidden_states;
    residual = hidden_states;
  }
  hidden_states = final_layer_norm(hidden_states);
  hidden_states = feed_forward.forward(std::move(hidden_states));
  hidden_states = residual + hidden_states;
  if (!is_decoder && hidden_states.dtype() == DType::kFloat16) hidden_states = clamp(hidden_states);
  drop(residual, attended.weights);
  return hidden_states;
}

Tensor wrap_last_to_front(const Tensor& labels) {
  Tensor shifted = no_grad::clone(labels);
  no_grad::equal(shifted).reset();  // shifted.masked_fill_(shifted == -100, …)
  Tensor last = no_grad::unsqueeze(no_grad::subtract(no_grad::sum(no_grad::not_equal(shifted), 1)), -1);
  Tensor starts = no_grad::gather(shifted, last);
  no_grad::clone(no_grad::slice(shifted, 1, 0, labels.size(1) - 1)).reset();  // shifted[:, 1:] = it
  drop(last, starts);
  return shifted;
}

Tensor shift_right(const Tensor& labels) {
  Tensor shifted = no_grad::new_zeros(labels.tape(), labels.shape(), labels.dtype());
  no_grad::clone(no_grad::slice(labels, 1, 0, labels.size(1) - 1)).reset();  // shifted[:, 1:] = it
  no_grad::equal(shifted).reset();  // shifted.masked_fill_(shifted == -100, …)
  return shifted;
}

Tensor decoder_input_ids_of(const Batch& batch, Tensor (*shift)(const Tensor& labels)) {
  if (batch.decoder_input_ids.defined()) return batch.decoder_input_ids;
  return shift(batch.labels.defined() ? batch.labels : batch.input_ids);
}

void record_copied_configurations(Tape& tape, const EncoderDecoderCache* cache, const ModelOutput& output, int copies) {
  if (cache == &output.past_key_values) record_host_work(tape, HostWork::kCopiedConfiguration, copies);
}

Tensor replaced_by(ModuleBuilder& builder, const Tensor& tied) { return builder.until_tied(tied.shape()); }

void predict_tokens(const Tensor& hidden_states, const Batch& batch, std::int64_t vocab_size,
                    const std::function<Tensor(const Tensor&)>& logits_of, ModelOutput& output) {
  const auto head = [&](const KeptTensors& arguments) {
    ModelOutput made;
    made.logits = logits_of(arguments[0]);
    if (!arguments[1].defined()) return made;
    made.loss = cross_entropy(view(made.logits, {-1, vocab_size}), view(arguments[1], {-1}));
    return made;
  };
  const KeptTensors arguments{hidden_states, batch.labels};
  std::optional<ModelOutput> made = batch.labels.defined() ? compiled_head(arguments, head) : std::nullopt;
  if (!made) made = head(arguments);
  output.logits = std::move(made->logits);
  output.loss = std::move(made->loss);
}

}  // namespace memcalc
