// ALBERT: transformers models/albert/modeling_albert.py.
// MIRRORS(transformers, "models/albert/modeling_albert.py", "5.17.0")
#include "memcalc/families/albert/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/encoder_parts.h"
#include "memcalc/models/span_head.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// AlbertAttention: with its residual and norm.
struct AlbertAttention {
  Linear query, key, value, dense;
  LayerNorm layer_norm;
  std::int64_t head_dim;
  double dropout_p;
  AttentionOptions options;

  AlbertAttention(ModuleBuilder& b, const AlbertSpec& spec, const RunSpec& run)
      : query(b, "query", spec.hidden_size, spec.hidden_size),
        key(b, "key", spec.hidden_size, spec.hidden_size),
        value(b, "value", spec.hidden_size, spec.hidden_size),
        dense(b, "dense", spec.hidden_size, spec.hidden_size),
        layer_norm(b, "LayerNorm", spec.hidden_size),
        head_dim(spec.hidden_size / spec.num_attention_heads),
        dropout_p(dropout_probability(run, spec.hidden_dropout_prob)),
        options{.implementation = run.attention,
                .dropout = dropout_probability(run, spec.attention_probs_dropout_prob)} {}

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
    result.output = dense(result.output);
    result.output = dropout(result.output, dropout_p);
    result.output = layer_norm(hidden_states + result.output);
    drop(query_layer, key_layer, value_layer);
    return result;
  }
};

struct AlbertLayer {
  LayerNorm full_layer_layer_norm;
  AlbertAttention attention;
  Linear ffn, ffn_output;
  std::string hidden_act;

  AlbertLayer(ModuleBuilder& b, const AlbertSpec& spec, const RunSpec& run)
      : full_layer_layer_norm(b, "full_layer_layer_norm", spec.hidden_size),
        attention(b.scope("attention", [&] { return AlbertAttention(b, spec, run); })),
        ffn(b, "ffn", spec.hidden_size, spec.intermediate_size),
        ffn_output(b, "ffn_output", spec.intermediate_size, spec.hidden_size),
        hidden_act(spec.hidden_act) {}

  [[nodiscard]] Tensor ff_chunk(const Tensor& attention_output) const {
    Tensor output = ffn(attention_output);
    output = activation_function(hidden_act, output);
    output = ffn_output(output);
    return output;
  }

  [[nodiscard]] Tensor forward(const Tensor& input, const Tensor& attention_mask) const {
    AttentionResult attended = attention.forward(input, attention_mask);
    Tensor output = ff_chunk(attended.output);
    Tensor hidden_states = full_layer_layer_norm(output + attended.output);
    drop(attended.output, attended.weights, output);
    return hidden_states;
  }
};

/// AlbertModel with its task's head.
class AlbertModel : public Model {
 public:
  AlbertModel(const AlbertSpec& spec, const RunSpec& run, ModuleBuilder& b) : spec_(spec), run_(run) {
    check_activation_function(spec.hidden_act);
    takes_token_types = true;
    b.scope("albert", [&] {
      embeddings_ = b.scope("embeddings", [&] {
        return BertEmbeddings(
            b, {spec.vocab_size, spec.max_position_embeddings, spec.type_vocab_size, spec.embedding_size}, false,
            dropout_probability(run, spec.hidden_dropout_prob));
      });
      return b.scope("encoder", [&] {
        embedding_hidden_mapping_in_ = Linear(b, "embedding_hidden_mapping_in", spec.embedding_size, spec.hidden_size);
        for (std::int64_t i = 0; i < spec.num_hidden_groups; ++i) {
          std::vector<AlbertLayer>& group = groups_.emplace_back();
          for (std::int64_t k = 0; k < spec.inner_group_num; ++k) {
            const std::string name = "albert_layer_groups." + std::to_string(i) + ".albert_layers." + std::to_string(k);
            group.push_back(b.scope(name, [&] { return AlbertLayer(b, spec, run); }));
          }
        }
        return 0;
      });
    });
    if (has_pooler()) pooler_ = Linear(b, "albert.pooler", spec.hidden_size, spec.hidden_size);
    // _init_weights writes torch.arange into the position buffer.
    no_grad::arange(b.tape, spec.max_position_embeddings).reset();
    build_head(b);
  }

  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    Encoded outputs = encode(batch);
    ModelOutput output;
    Tensor features;  // what is classified
    if (run_.task == Task::kFeatures) {
      output.others.push_back(outputs.sequence);
    } else if (run_.task == Task::kQuestionAnswering) {
      predict_spans(classifier_, outputs.sequence, batch, output);
    } else if (run_.task == Task::kMaskedLm) {
      output.logits = masked_lm_head_(outputs.sequence);
      set_label_loss(output, batch.labels, spec_.vocab_size);
    } else {
      features = dropout(outputs.pooled.defined() ? outputs.pooled : outputs.sequence,
                         dropout_probability(run_, spec_.classifier_dropout_prob));
      output.logits = classifier_(features);
      set_label_loss(output, batch.labels, spec_.num_labels);
    }
    drop(outputs.sequence, outputs.pooled, features);
    return output;
  }

 private:
  struct Encoded {
    Tensor sequence, pooled;
  };

  [[nodiscard]] bool has_pooler() const {
    return run_.task == Task::kFeatures || run_.task == Task::kSequenceClassification;
  }

  void build_head(ModuleBuilder& b) {
    if (run_.task == Task::kFeatures) return;
    if (run_.task == Task::kQuestionAnswering) {
      classifier_ = span_head(b, spec_.hidden_size);
      return;
    }
    if (run_.task != Task::kMaskedLm) {
      classifier_ = Linear(b, "classifier", spec_.hidden_size, spec_.num_labels);
      return;
    }
    masked_lm_head_ = MaskedLmHead(
        b, {.head = "predictions", .dense = "dense", .norm = "LayerNorm", .norm_first = true},
        {spec_.hidden_size, spec_.embedding_size, spec_.vocab_size}, spec_.hidden_act, spec_.tie_word_embeddings);
    masked_lm_head_.tie(b, embeddings_.word_embeddings);
  }

  [[nodiscard]] Encoded encode(const Batch& batch) const {
    Tensor embedding_output = embeddings_.forward(batch.input_ids, batch.token_type_ids);
    Batch masked = with_mask_of_ones(batch);
    Tensor attention_mask = create_bidirectional_mask(run_, embedding_output, masked);
    Encoded outputs;
    outputs.sequence = embedding_hidden_mapping_in_(embedding_output);
    for (std::int64_t i = 0; i < spec_.num_hidden_layers; ++i) {
      const std::vector<AlbertLayer>& group =
          groups_[static_cast<std::size_t>(i * spec_.num_hidden_groups / spec_.num_hidden_layers)];
      Tensor hidden_states = outputs.sequence;  // of AlbertLayerGroup.forward
      for (const AlbertLayer& layer : group) {
        hidden_states = checkpointed(run_, {hidden_states, attention_mask}, {},
                                     [&layer](const KeptTensors& kept) { return layer.forward(kept[0], kept[1]); });
      }
      outputs.sequence = std::move(hidden_states);
    }
    if (has_pooler()) {
      outputs.pooled = pooler_(select(open_slices(outputs.sequence, {0}), 1));
      outputs.pooled = tanh(outputs.pooled);
    }
    masked.clear();
    drop(attention_mask, embedding_output);
    return outputs;
  }

  AlbertSpec spec_;
  RunSpec run_;
  BertEmbeddings embeddings_;
  Linear embedding_hidden_mapping_in_;
  std::vector<std::vector<AlbertLayer>> groups_;
  Linear pooler_;
  MaskedLmHead masked_lm_head_;
  Linear classifier_;
};

}  // namespace

std::unique_ptr<Model> build_albert(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<AlbertModel>(architecture.as<AlbertSpec>(), run, builder);
}

}  // namespace memcalc
