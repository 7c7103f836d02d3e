// BERT, RoBERTa, XLM-RoBERTa, CamemBERT and ELECTRA: transformers models/bert/modeling_bert.py,
// models/roberta/modeling_roberta.py, models/electra/modeling_electra.py.
// MIRRORS(transformers, "models/bert/modeling_bert.py", "5.17.0")
// MIRRORS(transformers, "models/camembert/modeling_camembert.py", "5.17.0")
// MIRRORS(transformers, "models/electra/modeling_electra.py", "5.17.0")
// MIRRORS(transformers, "models/roberta/modeling_roberta.py", "5.17.0")
// MIRRORS(transformers, "models/xlm_roberta/modeling_xlm_roberta.py", "5.17.0")
#include "memcalc/models/model.h"
#include "memcalc/families/bert/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/encoder_parts.h"
#include "memcalc/models/megatron_config.h"
#include "memcalc/models/span_head.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

std::int64_t embedding_width(const BertSpec& spec) {
  return spec.embedding_size > 0 ? spec.embedding_size : spec.hidden_size;
}

BertEmbeddings::Sizes embedding_sizes(const BertSpec& spec) {
  return {spec.vocab_size, spec.max_position_embeddings, spec.type_vocab_size, embedding_width(spec)};
}

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
  [[nodiscard]] MaskedLmHead make_masked_lm_head(ModuleBuilder& b) const;
  void build_generator(ModuleBuilder& b);
  /// BertModel.forward: the last hidden state and, where there is a pooler, its output.
  struct Encoded {
    Tensor sequence, pooled;
  };
  [[nodiscard]] Encoded encode(const Batch& batch) const;
  [[nodiscard]] ModelOutput classify(const Batch& batch) const;
  [[nodiscard]] ModelOutput classify_tokens(const Batch& batch) const;
  [[nodiscard]] Tensor generator_scores(const Tensor& sequence) const;
  [[nodiscard]] ModelOutput predict_masked(const Batch& batch) const;
  [[nodiscard]] bool has_pooler() const {
    if (run_.task == Task::kFeatures) return !spec_.is_electra;  // AutoModel
    return run_.task == Task::kSequenceClassification && !spec_.is_roberta && !spec_.is_electra;
  }

  BertSpec spec_;
  RunSpec run_;
  double dropout_p_;
  double classifier_dropout_p_;
  BertEmbeddings embeddings_;
  Linear embeddings_project_;  // ELECTRA, where the widths differ
  std::vector<Layer> layers_;
  MaskedLmHead masked_lm_head_;
  ClassificationHead classification_head_;
  Linear dense_;  // the pooler, or the first layer of ELECTRA's generator
  LayerNorm head_norm_;
  Linear output_;  // classifier or ELECTRA's decoder
};

BertModel::BertModel(const BertSpec& spec, const RunSpec& run, ModuleBuilder& b)
    : spec_(spec), run_(run), dropout_p_(dropout_probability(run, spec.hidden_dropout_prob)) {
  check_activation_function(spec.hidden_act);
  takes_token_types = !spec.is_roberta;
  classifier_dropout_p_ = dropout_probability(run, spec.classifier_dropout.value_or(spec.hidden_dropout_prob));
  const AttentionOptions options{.implementation = run.attention,
                                 .dropout = dropout_probability(run, spec.attention_probs_dropout_prob)};
  if (spec.head_comes_first) build_head(b);
  b.scope(spec.is_roberta   ? "roberta"
          : spec.is_electra ? "electra"
                            : "bert",
          [&] {
            embeddings_ = b.scope(
                "embeddings", [&] { return BertEmbeddings(b, embedding_sizes(spec), spec.is_roberta, dropout_p_); });
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
  if (!spec.head_comes_first) build_head(b);
  masked_lm_head_.tie(b, embeddings_.word_embeddings);
}

void BertModel::build_head(ModuleBuilder& b) {
  const std::int64_t width = spec_.hidden_size;
  if (run_.task == Task::kFeatures) return;
  if (run_.task == Task::kQuestionAnswering) {
    output_ = span_head(b, width);
    return;
  }
  if (run_.task == Task::kTokenClassification) {
    output_ = Linear(b, "classifier", width, spec_.num_labels);
    return;
  }
  if (run_.task == Task::kSequenceClassification) {
    if (has_pooler()) {
      output_ = Linear(b, "classifier", width, spec_.num_labels);
    } else {
      classification_head_ =
          ClassificationHead(b, width, spec_.num_labels, spec_.is_electra ? "gelu" : "tanh", classifier_dropout_p_);
    }
    return;
  }
  if (spec_.is_electra) return build_generator(b);
  masked_lm_head_ = make_masked_lm_head(b);
}

/// BertLMPredictionHead or RobertaLMHead.
MaskedLmHead BertModel::make_masked_lm_head(ModuleBuilder& b) const {
  const MaskedLmHead::Names names =
      spec_.is_roberta
          ? MaskedLmHead::Names{.head = "lm_head", .dense = "dense", .norm = "layer_norm"}
          : MaskedLmHead::Names{.head = "cls.predictions", .dense = "transform.dense", .norm = "transform.LayerNorm"};
  return {b,
          names,
          {spec_.hidden_size, spec_.hidden_size, spec_.vocab_size},
          spec_.is_roberta ? "gelu" : spec_.hidden_act,
          spec_.tie_word_embeddings};
}

/// ElectraGeneratorPredictions and the head, whose weight is tied and whose bias is padded (_adjust_bias).
void BertModel::build_generator(ModuleBuilder& b) {
  const std::int64_t width = embedding_width(spec_);
  head_norm_ = LayerNorm(b, "generator_predictions.LayerNorm", width);
  dense_ = Linear(b, "generator_predictions.dense", spec_.hidden_size, width);
  output_ = tied_output(b, "generator_lm_head", embeddings_.word_embeddings.weight, spec_.tie_word_embeddings);
}

BertModel::Encoded BertModel::encode(const Batch& batch) const {
  Encoded outputs;
  const bool warns = batch.input_ids.tape().behaviors.masks_of_ones && !batch.attention_mask.defined();
  if (warns) warn_if_padding(batch.input_ids);
  Tensor embedding_output = embeddings_.forward(batch.input_ids, batch.token_type_ids);
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
  if (run_.task == Task::kQuestionAnswering) {
    Encoded outputs = encode(batch);
    ModelOutput output;
    predict_spans(output_, outputs.sequence, batch, output);
    return output;
  }
  return run_.task == Task::kTokenClassification ? classify_tokens(batch) : predict_masked(batch);
}

ModelOutput BertModel::classify(const Batch& batch) const {
  Encoded outputs = encode(batch);
  ModelOutput output;
  if (has_pooler()) {
    const Tensor pooled_output = dropout(outputs.pooled, classifier_dropout_p_);
    output.logits = output_(pooled_output);
    set_label_loss(output, batch.labels, spec_.num_labels);
    drop(outputs.sequence, outputs.pooled);
    return output;
  }
  output.logits = classification_head_(outputs.sequence);
  set_label_loss(output, batch.labels, spec_.num_labels);
  outputs.sequence.reset();
  return output;
}

ModelOutput BertModel::classify_tokens(const Batch& batch) const {
  Encoded outputs = encode(batch);
  ModelOutput output;
  Tensor sequence_output = dropout(outputs.sequence, classifier_dropout_p_);
  output.logits = output_(sequence_output);
  set_label_loss(output, batch.labels, spec_.num_labels);
  drop(outputs.sequence, sequence_output);
  return output;
}

/// ELECTRA's generator with its head.
Tensor BertModel::generator_scores(const Tensor& sequence) const {
  Tensor x = dense_(sequence);
  x = gelu(x);
  x = head_norm_(x);
  return output_(x);
}

ModelOutput BertModel::predict_masked(const Batch& batch) const {
  Encoded outputs = encode(batch);
  ModelOutput output;
  output.logits = spec_.is_electra ? generator_scores(outputs.sequence) : masked_lm_head_(outputs.sequence);
  set_label_loss(output, batch.labels, spec_.vocab_size);
  outputs.sequence.reset();
  return output;
}

}  // namespace

std::unique_ptr<Model> build_bert(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<BertModel>(architecture.as<BertSpec>(), run, builder);
}

/// Megatron-core's BertModel in these sizes: its layers begin with their norms, and its pre-training has a binary head.
void bert_to_megatron(const Architecture& architecture, MegatronConfig& config) {
  const auto& spec = architecture.as<BertSpec>();
  config.build = build_megatron_bert;
  config.num_layers = spec.num_hidden_layers;
  config.hidden_size = spec.hidden_size;
  config.ffn_hidden_size = spec.intermediate_size;
  config.num_attention_heads = config.num_query_groups = spec.num_attention_heads;
  config.kv_channels = spec.hidden_size / spec.num_attention_heads;
  config.padded_vocab_size = spec.vocab_size;
  config.max_position_embeddings = spec.max_position_embeddings;
  config.token_types = spec.type_vocab_size;
  config.head_bias = config.bias_linear = true;
  config.swiglu = config.rms_norm = config.rotary = false;
  config.shares_embeddings = spec.tie_word_embeddings;
  config.hidden_dropout = spec.hidden_dropout_prob;
  config.attention_dropout = spec.attention_probs_dropout_prob;
}

}  // namespace memcalc
