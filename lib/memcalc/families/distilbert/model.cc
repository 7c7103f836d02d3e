// DistilBERT: transformers models/distilbert/modeling_distilbert.py.
// MIRRORS(transformers, "models/distilbert/modeling_distilbert.py", "5.17.0")
#include "memcalc/models/model.h"
#include "memcalc/families/distilbert/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/span_head.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct Embeddings {
  Embedding word_embeddings, position_embeddings;
  LayerNorm layer_norm;
  Tensor position_ids;
  double dropout_p;

  Embeddings(ModuleBuilder& b, const DistilBertSpec& spec, double dropout_p)
      : word_embeddings(b, "word_embeddings", spec.vocab_size, spec.dim),
        position_embeddings(b, "position_embeddings", spec.max_position_embeddings, spec.dim),
        layer_norm(b, "LayerNorm", spec.dim),
        position_ids(unsqueeze(b.buffer({spec.max_position_embeddings}, DType::kInt64), 0)),
        dropout_p(dropout_p) {}

  [[nodiscard]] Tensor forward(const Tensor& input_ids) const {
    Tensor inputs_embeds = word_embeddings(input_ids);
    Tensor positions = slice(position_ids, 1, 0, input_ids.size(1));
    Tensor position_embeds = position_embeddings(positions);
    Tensor embeddings = inputs_embeds + position_embeds;
    embeddings = layer_norm(embeddings);
    embeddings = dropout(embeddings, dropout_p);
    drop(inputs_embeds, positions, position_embeds);
    return embeddings;
  }
};

struct TransformerBlock {
  Linear q_lin, k_lin, v_lin, out_lin;
  LayerNorm sa_layer_norm;
  Linear lin1, lin2;
  LayerNorm output_layer_norm;
  std::int64_t head_dim;
  double dropout_p;
  std::string activation;
  AttentionOptions options;

  TransformerBlock(ModuleBuilder& b, const DistilBertSpec& spec, const AttentionOptions& options, double dropout_p)
      : q_lin(b, "attention.q_lin", spec.dim, spec.dim),
        k_lin(b, "attention.k_lin", spec.dim, spec.dim),
        v_lin(b, "attention.v_lin", spec.dim, spec.dim),
        out_lin(b, "attention.out_lin", spec.dim, spec.dim),
        sa_layer_norm(b, "sa_layer_norm", spec.dim),
        lin1(b, "ffn.lin1", spec.dim, spec.hidden_dim),
        lin2(b, "ffn.lin2", spec.hidden_dim, spec.dim),
        output_layer_norm(b, "output_layer_norm", spec.dim),
        head_dim(spec.dim / spec.n_heads),
        dropout_p(dropout_p),
        activation(spec.activation),
        options(options) {}

  [[nodiscard]] AttentionResult attention(const Tensor& hidden_states, const Tensor& mask) const {
    const Shape shape{hidden_states.size(0), hidden_states.size(1), -1, head_dim};
    Tensor query_layer = transpose(view(q_lin(hidden_states), shape), 1, 2);
    Tensor key_layer = transpose(view(k_lin(hidden_states), shape), 1, 2);
    Tensor value_layer = transpose(view(v_lin(hidden_states), shape), 1, 2);
    AttentionResult result = attention_interface(query_layer, key_layer, value_layer, mask, options);
    result.output = reshape(result.output, hidden_states.shape());
    result.output = out_lin(result.output);
    drop(query_layer, key_layer, value_layer);
    return result;
  }

  [[nodiscard]] Tensor ffn(const Tensor& input) const {
    Tensor x = lin1(input);
    x = activation_function(activation, x);
    x = lin2(x);
    x = dropout(x, dropout_p);
    return x;
  }

  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const Tensor& mask) const {
    AttentionResult attn = attention(hidden_states, mask);
    attn.output = sa_layer_norm(attn.output + hidden_states);
    Tensor ffn_output = ffn(attn.output);
    ffn_output = output_layer_norm(ffn_output + attn.output);
    drop(attn.output, attn.weights);
    return ffn_output;
  }
};

class DistilBertModel : public Model {
 public:
  DistilBertModel(const DistilBertSpec& spec, const RunSpec& run, ModuleBuilder& b)
      : spec_(spec), run_(run), dropout_p_(dropout_probability(run, spec.dropout)) {
    check_activation_function(spec.activation);
    const AttentionOptions options{.implementation = run.attention,
                                   .dropout = dropout_probability(run, spec.attention_dropout)};
    b.scope("distilbert", [&] {
      embeddings_.push_back(b.scope("embeddings", [&] { return Embeddings(b, spec, dropout_p_); }));
      for (std::int64_t i = 0; i < spec.n_layers; ++i) {
        layers_.push_back(b.scope("transformer.layer." + std::to_string(i),
                                  [&] { return TransformerBlock(b, spec, options, dropout_p_); }));
      }
      return 0;
    });
    no_grad::arange(b.tape, spec.max_position_embeddings).reset();  // _init_weights writes the positions again
    switch (run.task) {
      case Task::kFeatures: break;
      case Task::kQuestionAnswering: output_ = span_head(b, spec.dim); break;
      case Task::kSequenceClassification:
        dense_ = Linear(b, "pre_classifier", spec.dim, spec.dim);
        output_ = Linear(b, "classifier", spec.dim, spec.num_labels);
        break;
      case Task::kTokenClassification: output_ = Linear(b, "classifier", spec.dim, spec.num_labels); break;
      default:
        dense_ = Linear(b, "vocab_transform", spec.dim, spec.dim);
        head_norm_ = LayerNorm(b, "vocab_layer_norm", spec.dim);
        output_ = tied_output(b, "vocab_projector", embeddings_[0].word_embeddings.weight, spec.tie_word_embeddings);
    }
  }

  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    if (run_.task == Task::kFeatures) {
      ModelOutput output;
      output.others.push_back(encode(batch));
      return output;
    }
    if (run_.task == Task::kSequenceClassification) return classify(batch);
    if (run_.task == Task::kQuestionAnswering) return find_spans(batch);
    return run_.task == Task::kTokenClassification ? classify_tokens(batch) : predict_masked(batch);
  }

 private:
  [[nodiscard]] Tensor encode(const Batch& batch) const {
    const bool warns = batch.input_ids.tape().behaviors.masks_of_ones && !batch.attention_mask.defined();
    if (warns) warn_if_padding(batch.input_ids);
    Tensor embeddings = embeddings_[0].forward(batch.input_ids);
    Tensor attention_mask = create_bidirectional_mask(run_, embeddings, with_mask_of_ones(batch));
    Tensor hidden_states = embeddings;
    for (const TransformerBlock& layer : layers_) {
      hidden_states = checkpointed(run_, {hidden_states, attention_mask}, {},
                                   [&layer](const KeptTensors& kept) { return layer.forward(kept[0], kept[1]); });
    }
    drop(attention_mask, embeddings);
    return hidden_states;
  }

  [[nodiscard]] ModelOutput classify(const Batch& batch) const {
    Tensor hidden_state = encode(batch);
    ModelOutput output;
    Tensor pooled_output = select(open_slices(hidden_state, {0}), 1);
    pooled_output = dense_(pooled_output);
    pooled_output = relu(pooled_output);
    pooled_output = dropout(pooled_output, dropout_probability(run_, spec_.seq_classif_dropout));
    output.logits = output_(pooled_output);
    if (batch.labels.defined()) output.loss = cross_entropy(view(output.logits, {-1, spec_.num_labels}), batch.labels);
    drop(hidden_state, pooled_output);
    return output;
  }

  [[nodiscard]] ModelOutput classify_tokens(const Batch& batch) const {
    Tensor last_hidden_state = encode(batch);
    ModelOutput output;
    Tensor sequence_output = dropout(last_hidden_state, dropout_p_);
    output.logits = output_(sequence_output);
    if (batch.labels.defined())
      output.loss = cross_entropy(view(output.logits, {-1, spec_.num_labels}), view(batch.labels, {-1}));
    drop(last_hidden_state, sequence_output);
    return output;
  }

  [[nodiscard]] ModelOutput find_spans(const Batch& batch) const {
    Tensor hidden_states = encode(batch);
    ModelOutput output;
    Tensor dropped = dropout(hidden_states, dropout_probability(run_, spec_.qa_dropout));
    predict_spans(output_, dropped, batch, output);
    drop(hidden_states, dropped);
    return output;
  }

  [[nodiscard]] ModelOutput predict_masked(const Batch& batch) const {
    Tensor hidden_states = encode(batch);
    ModelOutput output;
    Tensor prediction_logits = dense_(hidden_states);
    prediction_logits = activation_function(spec_.activation, prediction_logits);
    prediction_logits = head_norm_(prediction_logits);
    prediction_logits = output_(prediction_logits);
    output.logits = std::move(prediction_logits);
    if (batch.labels.defined())
      output.loss = cross_entropy(view(output.logits, {-1, spec_.vocab_size}), view(batch.labels, {-1}));
    hidden_states.reset();
    return output;
  }

  DistilBertSpec spec_;
  RunSpec run_;
  double dropout_p_;
  std::vector<Embeddings> embeddings_;  // one
  std::vector<TransformerBlock> layers_;
  Linear dense_;  // the head's first layer
  LayerNorm head_norm_;
  Linear output_;
};

}  // namespace

std::unique_ptr<Model> build_distilbert(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<DistilBertModel>(architecture.as<DistilBertSpec>(), run, builder);
}

}  // namespace memcalc
