// BERT, RoBERTa and ELECTRA: transformers models/bert/modeling_bert.py, models/roberta/modeling_roberta.py,
// models/electra/modeling_electra.py.
// MIRRORS(transformers, "models/bert/modeling_bert.py", "5.17.0")
// MIRRORS(transformers, "models/electra/modeling_electra.py", "5.17.0")
// MIRRORS(transformers, "models/roberta/modeling_roberta.py", "5.17.0")
#include <algorithm>

#include "memcalc/families/bert/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/hooked_module.h"
#include "memcalc/models/model.h"
#include "memcalc/models/positions_of_tokens.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

std::int64_t embedding_width(const BertSpec& spec) {
  return spec.embedding_size > 0 ? spec.embedding_size : spec.hidden_size;
}

struct Embeddings {
  Embedding word_embeddings, position_embeddings, token_type_embeddings;
  LayerNorm layer_norm;
  Tensor position_ids, token_type_ids;
  double dropout_p;
  bool is_roberta;

  Embeddings(ModuleBuilder& b, const BertSpec& spec, double dropout_p)
      : dropout_p(dropout_p), is_roberta(spec.is_roberta) {
    const std::int64_t width = embedding_width(spec);
    word_embeddings = Embedding(b, "word_embeddings", spec.vocab_size, width);
    const auto make_positions = [&] {
      position_embeddings = Embedding(b, "position_embeddings", spec.max_position_embeddings, width);
    };
    if (!is_roberta) make_positions();
    token_type_embeddings = Embedding(b, "token_type_embeddings", spec.type_vocab_size, width);
    layer_norm = LayerNorm(b, "LayerNorm", width);
    position_ids = unsqueeze(b.buffer({spec.max_position_embeddings}, DType::kInt64), 0);
    token_type_ids = b.buffer({1, spec.max_position_embeddings}, DType::kInt64);
    if (is_roberta) make_positions();
  }

  [[nodiscard]] Tensor forward(const Tensor& input_ids, const Tensor& own_token_types) const {
    const std::int64_t batch = input_ids.size(0);
    const std::int64_t sequence = input_ids.size(1);
    Tensor positions = is_roberta ? position_ids_of_tokens(input_ids) : slice(position_ids, 1, 0, sequence);
    Tensor token_types = own_token_types;
    const bool is_old = input_ids.tape().behaviors.masks_of_ones;  // 4.57.6
    if (!token_types.defined()) {
      token_types = is_old ? slice(token_type_ids, 1, 0, sequence) : no_grad::gather(token_type_ids, positions);
      token_types = expand(token_types, {batch, sequence});
    }
    Tensor inputs_embeds = word_embeddings(input_ids);
    Tensor type_embeds = token_type_embeddings(token_types);
    Tensor embeddings = inputs_embeds + type_embeds;
    Tensor position_embeds = position_embeddings(positions);
    embeddings = is_old ? add_in_place(embeddings, position_embeds) : embeddings + position_embeds;
    embeddings = layer_norm(embeddings);
    embeddings = dropout(embeddings, dropout_p);
    drop(positions, inputs_embeds, token_types, type_embeds, position_embeds);  // arguments first
    return embeddings;
  }
};

struct SelfAttention {
  Linear query, key, value;
  std::int64_t head_dim;
  AttentionOptions options;

  SelfAttention(ModuleBuilder& b, const BertSpec& spec, const AttentionOptions& options)
      : query(b, "query", spec.hidden_size, spec.hidden_size),
        key(b, "key", spec.hidden_size, spec.hidden_size),
        value(b, "value", spec.hidden_size, spec.hidden_size),
        head_dim(spec.hidden_size / spec.num_attention_heads),
        options(options) {}

  [[nodiscard]] Tensor heads(const Linear& projection, const Tensor& hidden_states) const {
    return transpose(view(projection(hidden_states), {hidden_states.size(0), hidden_states.size(1), -1, head_dim}), 1,
                     2);
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const Tensor& attention_mask) const {
    Tensor query_layer = heads(query, hidden_states);
    Tensor key_layer = heads(key, hidden_states);
    Tensor value_layer = heads(value, hidden_states);
    AttentionResult result = attention_interface(query_layer, key_layer, value_layer, attention_mask, options);
    result.output = reshape(result.output, hidden_states.shape());
    drop(query_layer, key_layer, value_layer);
    return result;
  }
};

/// BertSelfOutput and BertOutput: dense, dropout, residual, norm.
struct ResidualOutput {
  Linear dense;
  LayerNorm layer_norm;
  double dropout_p;

  ResidualOutput(ModuleBuilder& b, std::int64_t in, std::int64_t out, double dropout_p)
      : dense(b, "dense", in, out), layer_norm(b, "LayerNorm", out), dropout_p(dropout_p) {}

  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& input_tensor) const {
    Tensor hidden_states = dense(x);
    hidden_states = dropout(hidden_states, dropout_p);
    hidden_states = layer_norm(hidden_states + input_tensor);
    return hidden_states;
  }
};

struct Layer {
  SelfAttention self;
  ResidualOutput attention_output;
  Linear intermediate;
  ResidualOutput output;
  std::string hidden_act;

  Layer(ModuleBuilder& b, const BertSpec& spec, const AttentionOptions& options, double dropout_p)
      : self(b.scope("attention", [&] { return b.scope("self", [&] { return SelfAttention(b, spec, options); }); })),
        attention_output(b.scope("attention",
                                 [&] {
                                   return b.scope("output", [&] {
                                     return ResidualOutput(b, spec.hidden_size, spec.hidden_size, dropout_p);
                                   });
                                 })),
        intermediate(b, "intermediate.dense", spec.hidden_size, spec.intermediate_size),
        output(
            b.scope("output", [&] { return ResidualOutput(b, spec.intermediate_size, spec.hidden_size, dropout_p); })),
        hidden_act(spec.hidden_act) {}

  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const Tensor& attention_mask) const {
    AttentionResult self_attention = self.forward(hidden_states, attention_mask);
    Tensor attention = attention_output.forward(self_attention.output, hidden_states);
    self_attention.output.reset();
    Tensor intermediate_output = intermediate(attention);
    intermediate_output = activation_function(hidden_act, intermediate_output);
    Tensor layer_output = output.forward(intermediate_output, attention);
    drop(intermediate_output, self_attention.weights, attention);
    return layer_output;
  }
};

/// BertModel with its task's head.
class BertModel : public Model {
 public:
  BertModel(const BertSpec& spec, const RunSpec& run, ModuleBuilder& b);
  [[nodiscard]] ModelOutput forward(const Batch& batch) override;

 private:
  void build_head(ModuleBuilder& b);
  void build_decoder(ModuleBuilder& b, const std::string& head);
  void build_generator(ModuleBuilder& b);
  /// BertModel.forward: the last hidden state and, where there is a pooler, its output.
  struct Encoded {
    Tensor sequence, pooled;
  };
  [[nodiscard]] Encoded encode(const Batch& batch) const;
  [[nodiscard]] ModelOutput classify(const Batch& batch) const;
  [[nodiscard]] ModelOutput classify_tokens(const Batch& batch) const;
  [[nodiscard]] Tensor vocabulary_scores(const Tensor& sequence) const;
  [[nodiscard]] ModelOutput predict_masked(const Batch& batch) const;
  [[nodiscard]] bool has_pooler() const {
    if (run_.task == Task::kFeatures) return !spec_.is_electra;  // AutoModel
    return run_.task == Task::kSequenceClassification && !spec_.is_roberta && !spec_.is_electra;
  }

  BertSpec spec_;
  RunSpec run_;
  double dropout_p_;
  double classifier_dropout_p_;
  std::vector<Embeddings> embeddings_;  // one; made after the options are known
  Linear embeddings_project_;           // ELECTRA, where the widths differ
  std::vector<Layer> layers_;
  Linear dense_;  // the pooler, or the head's first layer
  LayerNorm head_norm_;
  Linear output_;  // classifier or decoder
};

BertModel::BertModel(const BertSpec& spec, const RunSpec& run, ModuleBuilder& b)
    : spec_(spec), run_(run), dropout_p_(dropout_probability(run, spec.hidden_dropout_prob)) {
  check_activation_function(spec.hidden_act);
  takes_token_types = !spec.is_roberta;
  classifier_dropout_p_ = dropout_probability(run, spec.classifier_dropout.value_or(spec.hidden_dropout_prob));
  const AttentionOptions options{.implementation = run.attention,
                                 .dropout = dropout_probability(run, spec.attention_probs_dropout_prob)};
  b.scope(spec.is_roberta   ? "roberta"
          : spec.is_electra ? "electra"
                            : "bert",
          [&] {
            embeddings_.push_back(b.scope("embeddings", [&] { return Embeddings(b, spec, dropout_p_); }));
            if (embedding_width(spec) != spec.hidden_size) {
              embeddings_project_ = Linear(b, "embeddings_project", embedding_width(spec), spec.hidden_size);
            }
            for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
              layers_.push_back(
                  b.scope("encoder.layer." + std::to_string(i), [&] { return Layer(b, spec, options, dropout_p_); }));
            }
            if (has_pooler()) dense_ = Linear(b, "pooler.dense", spec.hidden_size, spec.hidden_size);
            return 0;
          });
  // _init_weights writes torch.arange into the position buffer.
  no_grad::arange(b.tape, spec.max_position_embeddings).reset();
  build_head(b);
}

void BertModel::build_head(ModuleBuilder& b) {
  const std::int64_t width = spec_.hidden_size;
  if (run_.task == Task::kFeatures) return;
  if (run_.task == Task::kTokenClassification) {
    output_ = Linear(b, "classifier", width, spec_.num_labels);
    return;
  }
  if (run_.task == Task::kSequenceClassification) {
    if (!has_pooler()) {
      dense_ = Linear(b, "classifier.dense", width, width);
      output_ = Linear(b, "classifier.out_proj", width, spec_.num_labels);
    } else {
      output_ = Linear(b, "classifier", width, spec_.num_labels);
    }
    return;
  }
  if (spec_.is_electra) return build_generator(b);
  const std::string head = spec_.is_roberta ? "lm_head" : "cls.predictions";
  const std::size_t first = b.parameters.size();
  dense_ = Linear(b, head + (spec_.is_roberta ? ".dense" : ".transform.dense"), width, width);
  head_norm_ = LayerNorm(b, head + (spec_.is_roberta ? ".layer_norm" : ".transform.LayerNorm"), width);
  build_decoder(b, head);
  // The bias is the head's own parameter, so module.parameters() gives it before those of its layers.
  std::rotate(b.parameters.begin() + static_cast<std::ptrdiff_t>(first), b.parameters.end() - 1, b.parameters.end());
}

/// The decoder is made with weights of its own, which tie_weights replaces: the weight by the word embeddings, the
/// bias by the head's, each bias after a padded copy (_adjust_bias).
void BertModel::build_decoder(ModuleBuilder& b, const std::string& head) {
  const Shape vocabulary{spec_.vocab_size};
  const Tensor& tied = embeddings_[0].word_embeddings.weight;
  if (!spec_.tie_word_embeddings) {
    output_.weight = b.parameter(head + ".decoder.weight", tied.shape());
    output_.bias = b.parameter(head + ".decoder.bias", vocabulary, false);
    return;
  }
  Tensor own_weight = b.until_tied(tied.shape());
  Tensor own_bias = b.until_tied(vocabulary);
  Tensor head_bias = b.until_tied(vocabulary);
  own_weight.reset();
  Tensor padded = b.until_tied(vocabulary);
  drop(own_bias, padded);
  output_.weight = tied;
  output_.bias = b.parameter(head + ".bias", vocabulary, false);
  head_bias.reset();
}

/// ElectraGeneratorPredictions and the head, whose weight is tied and whose bias is padded (_adjust_bias).
void BertModel::build_generator(ModuleBuilder& b) {
  const std::int64_t width = embedding_width(spec_);
  head_norm_ = LayerNorm(b, "generator_predictions.LayerNorm", width);
  dense_ = Linear(b, "generator_predictions.dense", spec_.hidden_size, width);
  output_ = tied_output(b, "generator_lm_head", embeddings_[0].word_embeddings.weight, spec_.tie_word_embeddings);
}

BertModel::Encoded BertModel::encode(const Batch& batch) const {
  Encoded outputs;
  const bool warns = batch.input_ids.tape().behaviors.masks_of_ones && !batch.attention_mask.defined();
  if (warns) warn_if_padding(batch.input_ids);
  Tensor embedding_output = embeddings_[0].forward(batch.input_ids, batch.token_type_ids);
  if (embeddings_project_.weight.defined()) embedding_output = embeddings_project_(embedding_output);
  Batch masked = with_mask_of_ones(batch);
  Tensor attention_mask = create_bidirectional_mask(run_, embedding_output, masked);
  outputs.sequence = embedding_output;
  for (const Layer& layer : layers_) {
    outputs.sequence = checkpointed(run_, {outputs.sequence, attention_mask}, {},
                                    [&layer](const KeptTensors& kept) { return layer.forward(kept[0], kept[1]); });
  }
  if (has_pooler()) {
    outputs.pooled = dense_(select(open_slices(outputs.sequence, {0}), 1));
    outputs.pooled = tanh(outputs.pooled);
  }
  masked.clear();
  drop(attention_mask, embedding_output);
  return outputs;
}

ModelOutput BertModel::forward(const Batch& batch) {
  if (run_.task == Task::kFeatures) {
    ModelOutput output;
    output.others.push_back(encode(batch).sequence);
    return output;
  }
  if (run_.task == Task::kSequenceClassification) return classify(batch);
  return run_.task == Task::kTokenClassification ? classify_tokens(batch) : predict_masked(batch);
}

ModelOutput BertModel::classify(const Batch& batch) const {
  Encoded outputs = encode(batch);
  ModelOutput output;
  Tensor x;
  if (!has_pooler()) {
    x = open_slices(select(open_slices(outputs.sequence, {0}), 1), {1});
    x = dropout(x, classifier_dropout_p_);
    x = dense_(x);
    x = spec_.is_electra ? gelu(x) : tanh(x);
    x = dropout(x, classifier_dropout_p_);
  } else {
    x = dropout(outputs.pooled, classifier_dropout_p_);
  }
  output.logits = output_(x);
  if (batch.labels.defined()) output.loss = cross_entropy(view(output.logits, {-1, spec_.num_labels}), batch.labels);
  drop(outputs.sequence, outputs.pooled, x);
  return output;
}

ModelOutput BertModel::classify_tokens(const Batch& batch) const {
  Encoded outputs = encode(batch);
  ModelOutput output;
  Tensor sequence_output = dropout(outputs.sequence, classifier_dropout_p_);
  output.logits = output_(sequence_output);
  if (batch.labels.defined())
    output.loss = cross_entropy(view(output.logits, {-1, spec_.num_labels}), view(batch.labels, {-1}));
  drop(outputs.sequence, sequence_output);
  return output;
}

/// BertLMPredictionHead, RobertaLMHead, and ELECTRA's generator with its head.
Tensor BertModel::vocabulary_scores(const Tensor& sequence) const {
  Tensor x = dense_(sequence);
  x = spec_.is_roberta || spec_.is_electra ? gelu(x) : activation_function(spec_.hidden_act, x);
  x = head_norm_(x);
  return output_(x);
}

ModelOutput BertModel::predict_masked(const Batch& batch) const {
  Encoded outputs = encode(batch);
  ModelOutput output;
  ModuleHooks* hooks = outputs.sequence.tape().modes.module_hooks;
  const bool holds_bias = hooks != nullptr && spec_.tie_word_embeddings && !spec_.is_electra;
  if (holds_bias) {  // self.bias, which the decoder shares
    output.logits = between_hooks(*hooks, this, {&output_.bias}, outputs.sequence,
                                  [this](const Tensor& sequence) { return vocabulary_scores(sequence); });
  } else {
    output.logits = vocabulary_scores(outputs.sequence);
  }
  if (batch.labels.defined())
    output.loss = cross_entropy(view(output.logits, {-1, spec_.vocab_size}), view(batch.labels, {-1}));
  outputs.sequence.reset();
  return output;
}

}  // namespace

std::unique_ptr<Model> build_bert(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<BertModel>(architecture.as<BertSpec>(), run, builder);
}

}  // namespace memcalc
