// ModernBERT: transformers models/modernbert/modeling_modernbert.py.
// MIRRORS(transformers, "models/modernbert/modeling_modernbert.py", "5.17.0")
#include <algorithm>
#include <array>

#include "memcalc/families/modernbert/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/encoder_parts.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/models/span_head.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// (x.float() * cos) + (rotate_half(x.float()) * sin)
Tensor rotate_wide(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  Tensor scaled = to_dtype(x, DType::kFloat32) * cos;
  Tensor rotated = rotate_half(to_dtype(x, DType::kFloat32));
  Tensor product = std::move(rotated) * sin;
  return std::move(scaled) + std::move(product);
}

struct ModernBertAttention {
  Linear qkv, output;
  std::int64_t head_dim;
  double dropout_p;
  AttentionOptions options;

  ModernBertAttention(ModuleBuilder& b, const ModernBertSpec& spec, const RunSpec& run)
      : qkv(b, "Wqkv", spec.hidden_size, 3 * spec.hidden_size, spec.attention_bias),
        output(b, "Wo", spec.hidden_size, spec.hidden_size, spec.attention_bias),
        head_dim(spec.hidden_size / spec.num_attention_heads),
        dropout_p(dropout_probability(run, spec.attention_dropout)),
        options{.implementation = run.attention, .dropout = dropout_p, .softmax_in_float32 = true} {}

  static void rotate_both(Tensor& query, Tensor& key, const Tensor& cos_of, const Tensor& sin_of) {
    const DType original_dtype = query.dtype();
    const Tensor cos = unsqueeze(cos_of, 1);
    const Tensor sin = unsqueeze(sin_of, 1);
    Tensor q_embed = rotate_wide(query, cos, sin);
    Tensor k_embed = rotate_wide(key, cos, sin);
    Tensor q_cast = to_dtype(q_embed, original_dtype);
    Tensor k_cast = to_dtype(k_embed, original_dtype);
    drop(q_embed, k_embed);
    query = std::move(q_cast);
    key = std::move(k_cast);
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const Tensor& cos, const Tensor& sin,
                                        const Tensor& attention_mask) const {
    Tensor qkv_states = qkv(hidden_states);
    qkv_states = view(qkv_states, {hidden_states.size(0), hidden_states.size(1), 3, -1, head_dim});
    std::vector<Tensor> states = unbind(qkv_states, 2);
    for (Tensor& each : states) each = transpose(each, 1, 2);
    rotate_both(states[0], states[1], cos, sin);
    AttentionResult result = attention_interface(states[0], states[1], states[2], attention_mask, options);
    result.output = reshape(result.output, hidden_states.shape());
    result.output = dropout(output(result.output), dropout_p);
    drop(qkv_states, states[0], states[1], states[2]);
    return result;
  }
};

struct ModernBertMlp {
  Linear in, out;
  double dropout_p;
  std::string activation;

  ModernBertMlp(ModuleBuilder& b, const ModernBertSpec& spec, const RunSpec& run)
      : in(b, "Wi", spec.hidden_size, 2 * spec.intermediate_size, spec.mlp_bias),
        out(b, "Wo", spec.intermediate_size, spec.hidden_size, spec.mlp_bias),
        dropout_p(dropout_probability(run, spec.mlp_dropout)),
        activation(spec.hidden_activation) {}

  [[nodiscard]] Tensor operator()(const Tensor& hidden_states) const {
    std::vector<Tensor> input_and_gate = split(in(hidden_states), -1, 2);
    Tensor result = out(dropout(activation_function(activation, input_and_gate[0]) * input_and_gate[1], dropout_p));
    drop(input_and_gate[0], input_and_gate[1]);
    return result;
  }
};

/// ModernBertEncoderLayer.
struct ModernBertLayer {
  LayerNorm attn_norm;  // the first layer has none
  ModernBertAttention attn;
  LayerNorm mlp_norm;
  ModernBertMlp mlp;

  ModernBertLayer(ModuleBuilder& b, const ModernBertSpec& spec, const RunSpec& run, bool is_first)
      : attn_norm(is_first ? LayerNorm() : LayerNorm(b, "attn_norm", spec.hidden_size, spec.norm_bias)),
        attn(b.scope("attn", [&] { return ModernBertAttention(b, spec, run); })),
        mlp_norm(b, "mlp_norm", spec.hidden_size, spec.norm_bias),
        mlp(b.scope("mlp", [&] { return ModernBertMlp(b, spec, run); })) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const Tensor& attention_mask, const Tensor& cos,
                               const Tensor& sin) const {
    AttentionResult attended;
    {
      const Tensor normed = attn_norm.weight.defined() ? attn_norm(input) : input;
      attended = attn.forward(normed, cos, sin, attention_mask);
    }
    Tensor hidden_states = input + attended.output;
    Tensor mlp_output;
    {
      const Tensor normed = mlp_norm(hidden_states);
      mlp_output = mlp(normed);
    }
    hidden_states = hidden_states + std::move(mlp_output);
    drop(attended.output, attended.weights);
    return hidden_states;
  }
};

/// ModernBertPredictionHead.
struct PredictionHead {
  Linear dense;
  LayerNorm norm;
  std::string activation;

  PredictionHead() = default;
  PredictionHead(ModuleBuilder& b, const ModernBertSpec& spec)
      : dense(b, "dense", spec.hidden_size, spec.hidden_size, spec.classifier_bias),
        norm(b, "norm", spec.hidden_size, spec.norm_bias),
        activation(spec.classifier_activation) {}

  [[nodiscard]] Tensor operator()(const Tensor& hidden_states) const {
    Tensor x = dense(hidden_states);
    x = activation_function(activation, x);
    x = norm(x);
    return x;
  }
};

/// ModernBertModel with its task's head.
class ModernBertModel : public Model {
 public:
  ModernBertModel(const ModernBertSpec& spec, const RunSpec& run, ModuleBuilder& b) : spec_(spec), run_(run) {
    if (b.tape.behaviors.masks_of_ones) throw refusal(rules::kClassOfVersion, {"ModernBERT"});
    check_activation_function(spec.hidden_activation);
    check_activation_function(spec.classifier_activation);
    const auto build = [&] {
      tok_embeddings_ = Embedding(b, "embeddings.tok_embeddings", spec.vocab_size, spec.hidden_size);
      embeddings_norm_ = LayerNorm(b, "embeddings.norm", spec.hidden_size, spec.norm_bias);
      for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
        layers_.push_back(
            b.scope("layers." + std::to_string(i), [&] { return ModernBertLayer(b, spec, run, i == 0); }));
      }
      final_norm_ = LayerNorm(b, "final_norm", spec.hidden_size, spec.norm_bias);
      for (const bool sliding : {false, true}) {
        if (has_layers(sliding)) rotary(sliding) = RotaryEmbedding(b, spec.hidden_size / spec.num_attention_heads);
      }
      return 0;
    };
    // AutoModel is the encoder itself.
    run.task == Task::kFeatures ? build() : b.scope("model", build);
    Tensor current_frequencies;
    for (const bool sliding : {false, true}) {
      if (has_layers(sliding)) current_frequencies = rotary(sliding).initialize(b);
    }
    current_frequencies.reset();
    if (run.task == Task::kFeatures) return;
    head_ = b.scope("head", [&] { return PredictionHead(b, spec); });
    if (run.task == Task::kMaskedLm) {
      build_decoder(b);
    } else {
      const bool answers = run.task == Task::kQuestionAnswering;
      classifier_ = Linear(b, "classifier", spec.hidden_size, answers ? 2 : spec.num_labels);
    }
  }

  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    Tensor encoded = encoder_output(batch);
    ModelOutput output;
    if (run_.task == Task::kFeatures) {
      output.others.push_back(std::move(encoded));
      return output;
    }
    if (run_.task == Task::kMaskedLm) {
      output.logits = classifier_(head_(encoded));
      if (batch.labels.defined()) output.loss = masked_lm_loss(output.logits, batch.labels, batch.number_of_items);
      encoded.reset();
      return output;
    }
    Tensor features = run_.task == Task::kSequenceClassification ? pooled(encoded, batch.attention_mask) : encoded;
    features = head_(features);
    features = dropout(features, dropout_probability(run_, spec_.classifier_dropout));
    if (run_.task == Task::kQuestionAnswering) {
      predict_spans(classifier_, features, batch, output);
    } else {
      output.logits = classifier_(features);
      set_label_loss(output, batch.labels, spec_.num_labels);
    }
    drop(encoded, features);
    return output;
  }

 private:
  [[nodiscard]] bool has_layers(bool sliding) const {
    return std::find(spec_.sliding_layers.begin(), spec_.sliding_layers.end(), sliding) != spec_.sliding_layers.end();
  }
  [[nodiscard]] RotaryEmbedding& rotary(bool sliding) { return rotary_emb_[sliding ? 1 : 0]; }

  void build_decoder(ModuleBuilder& b) {
    if (!spec_.tie_word_embeddings) {
      classifier_ = Linear(b, "decoder", spec_.hidden_size, spec_.vocab_size, spec_.decoder_bias);
    } else if (spec_.decoder_bias) {
      classifier_ = tied_output(b, "decoder", tok_embeddings_.weight, true);
    } else {
      b.until_tied(tok_embeddings_.weight.shape()).reset();
      classifier_.weight = tok_embeddings_.weight;
    }
  }

  [[nodiscard]] Tensor encoder_output(const Batch& batch) const {
    Tensor positions = unsqueeze(no_grad::arange(batch.input_ids.tape(), batch.input_ids.size(1)), 0);
    Tensor hidden_states =
        dropout(embeddings_norm_(tok_embeddings_(batch.input_ids)), dropout_probability(run_, spec_.embedding_dropout));
    Tensor inputs_embeds = hidden_states;  // mask_kwargs holds it
    std::array<Tensor, 2> masks{create_bidirectional_mask(run_, hidden_states, batch),
                                create_bidirectional_mask(run_, hidden_states, batch, {}, spec_.local_attention / 2)};
    std::array<RotaryPositions, 2> embeddings;
    for (const std::size_t kind : {0, 1}) {
      if (has_layers(kind == 1)) embeddings[kind] = rotary_emb_[kind].forward(hidden_states, positions);
    }
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const std::size_t kind = spec_.sliding_layers[i] ? 1 : 0;
      hidden_states = checkpointed(
          run_, {hidden_states}, {masks[kind], embeddings[kind].cos, embeddings[kind].sin},
          [&layer = layers_[i]](const KeptTensors& kept) { return layer.forward(kept[0], kept[1], kept[2], kept[3]); });
    }
    hidden_states = final_norm_(hidden_states);
    drop(positions, masks[0], masks[1], inputs_embeds);
    for (RotaryPositions& each : embeddings) drop(each.sin, each.cos);  // tuples die from their end
    return hidden_states;
  }

  /// The first token of each sequence, or the mean of its tokens.
  [[nodiscard]] Tensor pooled(const Tensor& encoded, const Tensor& attention_mask) const {
    if (!spec_.pools_by_mean) return select(open_slices(encoded, {0}), 1);
    Tensor mask = attention_mask;
    if (!mask.defined()) {
      mask = no_grad::ones(encoded.tape(), {encoded.size(0), encoded.size(1)}, DType::kBool);
    }
    Tensor summed = sum(encoded * unsqueeze(mask, -1), 0b10, false);
    return divide(summed, no_grad::unsqueeze(no_grad::sum(mask, 1), 1));
  }

  ModernBertSpec spec_;
  RunSpec run_;
  Embedding tok_embeddings_;
  LayerNorm embeddings_norm_, final_norm_;
  std::vector<ModernBertLayer> layers_;
  std::array<RotaryEmbedding, 2> rotary_emb_;  // full, sliding
  PredictionHead head_;
  Linear classifier_;  // or the decoder
};

}  // namespace

std::unique_ptr<Model> build_modernbert(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<ModernBertModel>(architecture.as<ModernBertSpec>(), run, builder);
}

}  // namespace memcalc
