// Nomic BERT: transformers models/nomic_bert/modeling_nomic_bert.py.
// MIRRORS(transformers, "models/nomic_bert/modeling_nomic_bert.py", "5.17.0")
#include "memcalc/families/nomic_bert/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/encoder_parts.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct NomicBertEmbeddings {
  Embedding word_embeddings, token_type_embeddings;
  LayerNorm layer_norm;
  Tensor position_ids, token_type_ids;
  double dropout_p = 0;

  NomicBertEmbeddings() = default;
  NomicBertEmbeddings(ModuleBuilder& b, const NomicBertSpec& spec, double dropout_p)
      : word_embeddings(b, "word_embeddings", spec.vocab_size, spec.hidden_size),
        token_type_embeddings(b, "token_type_embeddings", spec.type_vocab_size, spec.hidden_size),
        layer_norm(b, "LayerNorm", spec.hidden_size),
        position_ids(b.buffer({1, spec.max_position_embeddings}, DType::kInt64)),
        token_type_ids(b.buffer({1, spec.max_position_embeddings}, DType::kInt64)),
        dropout_p(dropout_p) {}

  [[nodiscard]] Tensor forward(const Tensor& input_ids, const Tensor& own_token_types) const {
    Tensor embeddings = word_embeddings(input_ids);
    Tensor token_types = own_token_types;
    if (!token_types.defined()) token_types = no_grad::zeros(input_ids.tape(), input_ids.shape(), DType::kInt64);
    Tensor type_embeds = token_type_embeddings(token_types);
    embeddings = embeddings + type_embeds;
    embeddings = layer_norm(embeddings);
    embeddings = dropout(embeddings, dropout_p);
    drop(token_types, type_embeds);
    return embeddings;
  }
};

struct NomicBertAttention {
  Linear q_proj, k_proj, v_proj, o_proj;
  std::int64_t head_dim;
  AttentionOptions options;

  NomicBertAttention(ModuleBuilder& b, const NomicBertSpec& spec, const RunSpec& run)
      : q_proj(b, "q_proj", spec.hidden_size, spec.num_attention_heads * spec.head_dim, false),
        k_proj(b, "k_proj", spec.hidden_size, spec.num_attention_heads * spec.head_dim, false),
        v_proj(b, "v_proj", spec.hidden_size, spec.num_attention_heads * spec.head_dim, false),
        o_proj(b, "o_proj", spec.num_attention_heads * spec.head_dim, spec.hidden_size, false),
        head_dim(spec.head_dim),
        options{.implementation = run.attention,
                .dropout = dropout_probability(run, spec.attention_probs_dropout_prob)} {}

  [[nodiscard]] Tensor heads(const Linear& projection, const Tensor& hidden_states) const {
    return transpose(view(projection(hidden_states), {hidden_states.size(0), hidden_states.size(1), -1, head_dim}), 1,
                     2);
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const Tensor& attention_mask, const Tensor& cos,
                                        const Tensor& sin) const {
    Tensor query_states = heads(q_proj, hidden_states);
    Tensor key_states = heads(k_proj, hidden_states);
    Tensor value_states = heads(v_proj, hidden_states);
    apply_rotary(query_states, key_states, cos, sin);
    AttentionResult result = attention_interface(query_states, key_states, value_states, attention_mask, options);
    result.output = reshape(result.output, {hidden_states.size(0), hidden_states.size(1), -1});
    result.output = o_proj(result.output);
    drop(query_states, key_states, value_states);
    return result;
  }
};

struct NomicBertLayer {
  LayerNorm post_attention_layernorm;
  Linear gate_proj, up_proj, down_proj;
  NomicBertAttention self_attn;
  LayerNorm post_mlp_layernorm;
  double dropout_p;
  std::string hidden_act;

  NomicBertLayer(ModuleBuilder& b, const NomicBertSpec& spec, const RunSpec& run)
      : post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size),
        gate_proj(b, "mlp.gate_proj", spec.hidden_size, spec.intermediate_size, false),
        up_proj(b, "mlp.up_proj", spec.hidden_size, spec.intermediate_size, false),
        down_proj(b, "mlp.down_proj", spec.intermediate_size, spec.hidden_size, false),
        self_attn(b.scope("self_attn", [&] { return NomicBertAttention(b, spec, run); })),
        post_mlp_layernorm(b, "post_mlp_layernorm", spec.hidden_size),
        dropout_p(dropout_probability(run, spec.hidden_dropout_prob)),
        hidden_act(spec.hidden_act) {}

  [[nodiscard]] Tensor mlp(const Tensor& x) const {
    Tensor gate = gate_proj(x);
    gate = activation_function(hidden_act, gate);
    Tensor up = up_proj(x);
    const Tensor product = std::move(gate) * std::move(up);
    return down_proj(product);
  }

  [[nodiscard]] Tensor forward(const Tensor& input, const Tensor& attention_mask, const Tensor& cos,
                               const Tensor& sin) const {
    Tensor hidden_states, residual = input;
    AttentionResult attended;
    const Locals locals(hidden_states, residual, attended.output, attended.weights);  // so, too, where it stops early
    attended = self_attn.forward(input, attention_mask, cos, sin);
    hidden_states = residual + dropout(attended.output, dropout_p);
    hidden_states = post_attention_layernorm(hidden_states);
    residual = hidden_states;
    hidden_states = mlp(hidden_states);
    hidden_states = residual + dropout(hidden_states, dropout_p);
    Tensor output = post_mlp_layernorm(hidden_states);
    return output;
  }
};

/// NomicBertModel with its task's head.
class NomicBertModel : public Model {
 public:
  NomicBertModel(const NomicBertSpec& spec, const RunSpec& run, ModuleBuilder& b) : spec_(spec), run_(run) {
    check_activation_function(spec.hidden_act);
    takes_token_types = true;
    b.scope("nomic_bert", [&] {
      embeddings_ = b.scope("embeddings", [&] {
        return NomicBertEmbeddings(b, spec, dropout_probability(run, spec.hidden_dropout_prob));
      });
      if (has_pooler()) pooler_ = Linear(b, "pooler.dense", spec.hidden_size, spec.hidden_size);
      rotary_emb_ = RotaryEmbedding(b, spec.head_dim);
      for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
        layers_.push_back(b.scope("layers." + std::to_string(i), [&] { return NomicBertLayer(b, spec, run); }));
      }
      return 0;
    });
    // _init_weights writes torch.arange into the position buffer, and computes the frequencies again.
    no_grad::arange(b.tape, spec.max_position_embeddings).reset();
    rotary_emb_.initialize(b).reset();
    if (run.task == Task::kFeatures) return;
    if (run.task != Task::kMaskedLm) {
      classifier_ = Linear(b, "classifier", spec.hidden_size, spec.num_labels);
      return;
    }
    masked_lm_head_ =
        MaskedLmHead(b, {.head = "cls.predictions", .dense = "transform.dense", .norm = "transform.layer_norm"},
                     {spec.hidden_size, spec.hidden_size, spec.vocab_size}, spec.hidden_act, spec.tie_word_embeddings);
    masked_lm_head_.tie(b, embeddings_.word_embeddings);
  }

  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    Encoded outputs = encoder_output(batch);
    ModelOutput output;
    Tensor features;  // what is classified
    if (run_.task == Task::kFeatures) {
      output.others.push_back(outputs.sequence);
    } else if (run_.task == Task::kMaskedLm) {
      output.logits = masked_lm_head_(outputs.sequence);
      set_label_loss(output, batch.labels, spec_.vocab_size);
    } else {
      features = dropout(outputs.pooled.defined() ? outputs.pooled : outputs.sequence,
                         dropout_probability(run_, spec_.classifier_dropout.value_or(spec_.hidden_dropout_prob)));
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

  [[nodiscard]] bool has_pooler() const { return run_.task == Task::kSequenceClassification; }

  [[nodiscard]] Encoded encoder_output(const Batch& batch) const {
    Tensor position_ids = unsqueeze(no_grad::arange(batch.input_ids.tape(), batch.input_ids.size(1)), 0);
    Tensor embedding_output = embeddings_.forward(batch.input_ids, batch.token_type_ids);
    Tensor attention_mask = create_bidirectional_mask(run_, embedding_output, batch);
    RotaryPositions positions = rotary_emb_.forward(embedding_output, position_ids);
    Encoded outputs{embedding_output, {}};
    for (const NomicBertLayer& layer : layers_) {
      outputs.sequence =
          checkpointed(run_, {outputs.sequence}, {attention_mask, positions.cos, positions.sin, position_ids},
                       [&layer](const KeptTensors& kept) { return layer.forward(kept[0], kept[1], kept[2], kept[3]); });
    }
    if (has_pooler()) {
      outputs.pooled = pooler_(select(open_slices(outputs.sequence, {0}), 1));
      outputs.pooled = tanh(outputs.pooled);
    }
    drop(attention_mask, position_ids, embedding_output, positions.sin, positions.cos);
    return outputs;
  }

  NomicBertSpec spec_;
  RunSpec run_;
  NomicBertEmbeddings embeddings_;
  Linear pooler_;
  RotaryEmbedding rotary_emb_;
  std::vector<NomicBertLayer> layers_;
  MaskedLmHead masked_lm_head_;
  Linear classifier_;
};

}  // namespace

std::unique_ptr<Model> build_nomic_bert(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<NomicBertModel>(architecture.as<NomicBertSpec>(), run, builder);
}

}  // namespace memcalc
