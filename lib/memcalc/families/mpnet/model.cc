// MPNet: transformers models/mpnet/modeling_mpnet.py.
// MIRRORS(transformers, "models/mpnet/modeling_mpnet.py", "5.17.0")
#include "memcalc/families/mpnet/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/encoder_parts.h"
#include "memcalc/models/span_head.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct MpnetEmbeddings {
  Embedding word_embeddings, position_embeddings;
  LayerNorm layer_norm;
  Tensor position_ids;
  double dropout_p = 0;

  MpnetEmbeddings() = default;
  MpnetEmbeddings(ModuleBuilder& b, const MpnetSpec& spec, double dropout_p)
      : word_embeddings(b, "word_embeddings", spec.vocab_size, spec.hidden_size),
        position_embeddings(b, "position_embeddings", spec.max_position_embeddings, spec.hidden_size),
        layer_norm(b, "LayerNorm", spec.hidden_size),
        position_ids(b.buffer({1, spec.max_position_embeddings}, DType::kInt64)),
        dropout_p(dropout_p) {}

  [[nodiscard]] Tensor forward(const Tensor& input_ids) const {
    Tensor positions = positions_of_tokens(input_ids, false);
    Tensor inputs_embeds = word_embeddings(input_ids);
    Tensor position_embeds = position_embeddings(positions);
    Tensor embeddings = inputs_embeds + position_embeds;
    embeddings = layer_norm(embeddings);
    embeddings = dropout(embeddings, dropout_p);
    drop(positions, inputs_embeds, position_embeds);
    return embeddings;
  }
};

/// MPNetSelfAttention and MPNetAttention: with its residual and norm.
struct MpnetAttention {
  Linear q, k, v, o;
  LayerNorm layer_norm;
  std::int64_t head_dim;
  double attention_dropout_p, dropout_p;

  MpnetAttention(ModuleBuilder& b, const MpnetSpec& spec, const RunSpec& run)
      : q(b, "attn.q", spec.hidden_size, spec.hidden_size),
        k(b, "attn.k", spec.hidden_size, spec.hidden_size),
        v(b, "attn.v", spec.hidden_size, spec.hidden_size),
        o(b, "attn.o", spec.hidden_size, spec.hidden_size),
        layer_norm(b, "LayerNorm", spec.hidden_size),
        head_dim(spec.hidden_size / spec.num_attention_heads),
        attention_dropout_p(dropout_probability(run, spec.attention_probs_dropout_prob)),
        dropout_p(dropout_probability(run, spec.hidden_dropout_prob)) {}

  [[nodiscard]] Tensor heads(const Linear& projection, const Tensor& hidden_states) const {
    return transpose(view(projection(hidden_states), {hidden_states.size(0), hidden_states.size(1), -1, head_dim}), 1,
                     2);
  }

  [[nodiscard]] Tensor attend(const Tensor& hidden_states, const Tensor& attention_mask,
                              const Tensor& position_bias) const {
    Tensor query = heads(q, hidden_states);
    Tensor key = heads(k, hidden_states);
    Tensor value = heads(v, hidden_states);
    Tensor attention_scores = matmul(query, transpose(key, -1, -2));
    attention_scores = divide_scalar(attention_scores);
    attention_scores = add_in_place(attention_scores, position_bias);
    if (attention_mask.defined()) attention_scores = attention_scores + attention_mask;
    Tensor attention_probs = softmax(attention_scores);
    attention_probs = dropout(attention_probs, attention_dropout_p);
    Tensor context = matmul(attention_probs, value);
    context = contiguous(permute(context, {0, 2, 1, 3}));
    context = view(context, hidden_states.shape());
    Tensor output = o(context);
    drop(query, key, value, attention_scores, attention_probs, context);
    return output;
  }

  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const Tensor& attention_mask,
                               const Tensor& position_bias) const {
    const Tensor self_output = attend(hidden_states, attention_mask, position_bias);
    return layer_norm(dropout(self_output, dropout_p) + hidden_states);
  }
};

struct MpnetLayer {
  MpnetAttention attention;
  Linear intermediate;
  ResidualOutput output;
  std::string hidden_act;

  MpnetLayer(ModuleBuilder& b, const MpnetSpec& spec, const RunSpec& run)
      : attention(b.scope("attention", [&] { return MpnetAttention(b, spec, run); })),
        intermediate(b, "intermediate.dense", spec.hidden_size, spec.intermediate_size),
        output(b.scope("output",
                       [&] {
                         return ResidualOutput(b, spec.intermediate_size, spec.hidden_size,
                                               dropout_probability(run, spec.hidden_dropout_prob));
                       })),
        hidden_act(spec.hidden_act) {}

  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const Tensor& attention_mask,
                               const Tensor& position_bias) const {
    Tensor attention_output = attention.forward(hidden_states, attention_mask, position_bias);
    Tensor intermediate_output = intermediate(attention_output);
    intermediate_output = activation_function(hidden_act, intermediate_output);
    Tensor layer_output = output.forward(intermediate_output, attention_output);
    drop(attention_output, intermediate_output);
    return layer_output;
  }
};

/// MPNetModel with its task's head.
class MpnetModel : public Model {
 public:
  MpnetModel(const MpnetSpec& spec, const RunSpec& run, ModuleBuilder& b)
      : spec_(spec), run_(run), dropout_p_(dropout_probability(run, spec.hidden_dropout_prob)) {
    check_activation_function(spec.hidden_act);
    b.scope("mpnet", [&] {
      embeddings_ = b.scope("embeddings", [&] { return MpnetEmbeddings(b, spec, dropout_p_); });
      b.scope("encoder", [&] {
        for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
          layers_.push_back(b.scope("layer." + std::to_string(i), [&] { return MpnetLayer(b, spec, run); }));
        }
        relative_attention_bias_ =
            Embedding(b, "relative_attention_bias", spec.relative_attention_num_buckets, spec.num_attention_heads);
        b.parameters.back().decays = false;  // its name holds "bias"
        return 0;
      });
      if (run.task == Task::kFeatures) dense_ = Linear(b, "pooler.dense", spec.hidden_size, spec.hidden_size);
      return 0;
    });
    // _init_weights writes torch.arange into the position buffer.
    no_grad::arange(b.tape, spec.max_position_embeddings).reset();
    build_head(b);
  }

  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    Tensor sequence_output = encoder_output(batch);
    ModelOutput output;
    if (run_.task == Task::kFeatures) {
      output.others.push_back(sequence_output);
    } else if (run_.task == Task::kQuestionAnswering) {
      predict_spans(dense_, sequence_output, batch, output);
    } else if (run_.task == Task::kMaskedLm) {
      output.logits = masked_lm_head_(sequence_output);
      set_label_loss(output, batch.labels, spec_.vocab_size);
    } else if (run_.task == Task::kSequenceClassification) {
      output.logits = classification_head_(sequence_output);
      set_label_loss(output, batch.labels, spec_.num_labels);
    } else {
      Tensor dropped = dropout(sequence_output, dropout_p_);
      output.logits = dense_(dropped);
      set_label_loss(output, batch.labels, spec_.num_labels);
      drop(sequence_output, dropped);
    }
    sequence_output.reset();
    return output;
  }

 private:
  void build_head(ModuleBuilder& b) {
    switch (run_.task) {
      case Task::kFeatures: return;
      case Task::kQuestionAnswering: dense_ = span_head(b, spec_.hidden_size); return;
      case Task::kTokenClassification: dense_ = Linear(b, "classifier", spec_.hidden_size, spec_.num_labels); return;
      case Task::kSequenceClassification:
        classification_head_ = ClassificationHead(b, spec_.hidden_size, spec_.num_labels, "tanh", dropout_p_);
        return;
      default: break;
    }
    masked_lm_head_ =
        MaskedLmHead(b, {.head = "lm_head", .dense = "dense", .norm = "layer_norm"},
                     {spec_.hidden_size, spec_.hidden_size, spec_.vocab_size}, "gelu", spec_.tie_word_embeddings);
    masked_lm_head_.tie(b, embeddings_.word_embeddings);
  }

  /// MPNetEncoder.compute_position_bias: the buckets are found on the host. [B, heads, S, S]
  [[nodiscard]] Tensor position_bias(const Tensor& x) const {
    const std::int64_t batch = x.size(0), tokens = x.size(1);
    Tensor buckets = no_grad::from_list(x.tape(), {tokens, tokens});
    Tensor values = relative_attention_bias_(buckets);
    values = unsqueeze(permute(values, {2, 0, 1}), 0);
    values = contiguous(expand(values, {batch, -1, tokens, tokens}));
    buckets.reset();
    return values;
  }

  /// MPNetModel.forward: the last hidden state; what the pooler makes of it nobody reads.
  [[nodiscard]] Tensor encoder_output(const Batch& batch) const {
    Tensor embedding_output = embeddings_.forward(batch.input_ids);
    Batch masked = with_mask_of_ones(batch);
    Tensor attention_mask = create_bidirectional_mask(run_, embedding_output, masked);
    Tensor bias = position_bias(embedding_output);
    Tensor sequence_output = embedding_output;
    for (const MpnetLayer& layer : layers_) {
      sequence_output =
          checkpointed(run_, {sequence_output, attention_mask, bias}, {},
                       [&layer](const KeptTensors& kept) { return layer.forward(kept[0], kept[1], kept[2]); });
    }
    bias.reset();
    if (run_.task == Task::kFeatures) tanh(dense_(select(open_slices(sequence_output, {0}), 1))).reset();
    masked.clear();
    drop(attention_mask, embedding_output);
    return sequence_output;
  }

  MpnetSpec spec_;
  RunSpec run_;
  double dropout_p_;
  MpnetEmbeddings embeddings_;
  std::vector<MpnetLayer> layers_;
  Embedding relative_attention_bias_;
  MaskedLmHead masked_lm_head_;
  ClassificationHead classification_head_;
  Linear dense_;  // the pooler, or the classifier of tokens
};

}  // namespace

std::unique_ptr<Model> build_mpnet(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<MpnetModel>(architecture.as<MpnetSpec>(), run, builder);
}

}  // namespace memcalc
