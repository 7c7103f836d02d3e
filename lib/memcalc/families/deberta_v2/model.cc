// DeBERTa v2 and v3: transformers models/deberta_v2/modeling_deberta_v2.py. What it has compiled by torch.jit.script
// runs here operator by operator. It knows eager attention alone, and always has a mask.
// MIRRORS(transformers, "models/deberta_v2/modeling_deberta_v2.py", "5.17.0")
#include "memcalc/families/deberta_v2/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/encoder_parts.h"
#include "memcalc/models/span_head.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct DebertaV2Embeddings {
  Embedding word_embeddings, position_embeddings, token_type_embeddings;
  Linear embed_proj;  // where the widths differ
  LayerNorm layer_norm;
  Tensor position_ids;
  double dropout_p = 0;

  DebertaV2Embeddings() = default;
  DebertaV2Embeddings(ModuleBuilder& b, const DebertaV2Spec& spec, double dropout_p) : dropout_p(dropout_p) {
    const std::int64_t width = spec.embedding_size;
    word_embeddings = Embedding(b, "word_embeddings", spec.vocab_size, width);
    if (spec.position_biased_input) {
      position_embeddings = Embedding(b, "position_embeddings", spec.max_position_embeddings, width);
    }
    if (spec.type_vocab_size > 0) {
      token_type_embeddings = Embedding(b, "token_type_embeddings", spec.type_vocab_size, width);
    }
    if (width != spec.hidden_size) embed_proj = Linear(b, "embed_proj", width, spec.hidden_size, false);
    layer_norm = LayerNorm(b, "LayerNorm", spec.hidden_size);
    position_ids = b.buffer({1, spec.max_position_embeddings}, DType::kInt64);
  }

  [[nodiscard]] Tensor forward(const Tensor& input_ids, const Tensor& token_type_ids,
                               const Tensor& attention_mask) const {
    Tensor inputs_embeds = word_embeddings(input_ids);
    // Zeros that nobody reads where there are no absolute positions.
    Tensor position_embeds = position_embeddings.weight.defined()
                                 ? position_embeddings(slice(position_ids, 1, 0, input_ids.size(1)))
                                 : no_grad::zeros_like(inputs_embeds);
    Tensor embeddings = inputs_embeds;
    if (position_embeddings.weight.defined()) embeddings = embeddings + position_embeds;
    Tensor type_embeds;
    if (token_type_embeddings.weight.defined()) {
      type_embeds = token_type_embeddings(token_type_ids);
      embeddings = embeddings + type_embeds;
    }
    if (embed_proj.weight.defined()) embeddings = embed_proj(embeddings);
    embeddings = layer_norm(embeddings);
    Tensor mask = to_dtype(unsqueeze(attention_mask, 2), embeddings.dtype());
    embeddings = embeddings * mask;
    embeddings = dropout(embeddings, dropout_p);
    drop(mask, inputs_embeds, position_embeds, type_embeds);
    return embeddings;
  }
};

/// make_log_bucket_position
Tensor log_bucket_position(const Tensor& relative_pos) {
  Tensor sign = no_grad::sign(relative_pos);
  Tensor abs_pos;
  {
    Tensor is_near = no_grad::bitwise_and(no_grad::less(relative_pos), no_grad::greater(relative_pos));
    Tensor middle = no_grad::from_list(relative_pos.tape(), {});
    Tensor distance = no_grad::absolute(relative_pos);
    abs_pos = no_grad::where(is_near, distance, middle);
    drop(is_near, middle, distance);
  }
  Tensor log_pos = no_grad::divide(no_grad::logarithm(no_grad::divide(abs_pos)));
  log_pos = no_grad::ceil(no_grad::multiply(std::move(log_pos)));
  log_pos = no_grad::add(std::move(log_pos));
  Tensor bucket_pos;
  {
    Tensor is_near = no_grad::less_equal(abs_pos);
    Tensor exact = no_grad::to(relative_pos, DType::kFloat32);
    Tensor far = no_grad::multiply(log_pos, sign);
    bucket_pos = no_grad::where(is_near, exact, far);
    drop(is_near, exact, far);
  }
  drop(sign, abs_pos, log_pos);
  return bucket_pos;
}

/// build_relative_position: [1, S, S] int64
Tensor build_relative_position(Tape& tape, std::int64_t tokens, bool buckets) {
  Tensor q_ids = no_grad::arange(tape, tokens);
  Tensor k_ids = no_grad::arange(tape, tokens);
  Tensor rel_pos_ids = no_grad::subtract(no_grad::view(q_ids, {tokens, 1}), no_grad::view(k_ids, {1, tokens}));
  if (buckets) rel_pos_ids = log_bucket_position(rel_pos_ids);
  rel_pos_ids = no_grad::to(std::move(rel_pos_ids), DType::kInt64);
  drop(q_ids, k_ids);
  return no_grad::unsqueeze(rel_pos_ids, 0);
}

struct DisentangledSelfAttention {
  Linear query_proj, key_proj, value_proj;
  Linear pos_key_proj, pos_query_proj;  // unless share_att_key
  std::int64_t heads, head_dim, position_span;
  bool shares_keys, content_to_position, position_to_content;
  double dropout_p, position_dropout_p;

  DisentangledSelfAttention(ModuleBuilder& b, const DebertaV2Spec& spec, const RunSpec& run)
      : query_proj(b, "query_proj", spec.hidden_size, spec.hidden_size),
        key_proj(b, "key_proj", spec.hidden_size, spec.hidden_size),
        value_proj(b, "value_proj", spec.hidden_size, spec.hidden_size),
        heads(spec.num_attention_heads),
        head_dim(spec.hidden_size / spec.num_attention_heads),
        position_span(spec.position_span),
        shares_keys(spec.shares_keys),
        content_to_position(spec.content_to_position),
        position_to_content(spec.position_to_content),
        dropout_p(dropout_probability(run, spec.attention_probs_dropout_prob)),
        position_dropout_p(dropout_probability(run, spec.hidden_dropout_prob)) {
    if (position_span == 0 || shares_keys) return;
    if (content_to_position) pos_key_proj = Linear(b, "pos_key_proj", spec.hidden_size, spec.hidden_size);
    if (position_to_content) pos_query_proj = Linear(b, "pos_query_proj", spec.hidden_size, spec.hidden_size);
  }

  /// [B, S, h] -> [B * heads, S, D] by copying.
  [[nodiscard]] Tensor transpose_for_scores(const Tensor& projected) const {
    const Tensor x = view(projected, {projected.size(0), projected.size(1), heads, -1});
    return view(contiguous(permute(x, {0, 2, 1, 3})), {-1, projected.size(1), head_dim});
  }

  [[nodiscard]] Tensor scores_of(const Linear& projection, const Tensor& x) const {
    return transpose_for_scores(projection(x));
  }

  /// The positions' keys or queries, once for each sequence.
  [[nodiscard]] Tensor of_positions(const Linear& projection, const Tensor& rel_embeddings, std::int64_t batch) const {
    return repeat(scores_of(projection, rel_embeddings), {batch, 1, 1});
  }

  /// The span's scores at the distance of each pair of tokens. `places`: [1, 1, S, S]
  [[nodiscard]] static Tensor at_distances(const Tensor& scores, const Tensor& places) {
    const std::int64_t tokens = scores.size(1);
    return gather(scores,
                  no_grad::expand(no_grad::view(places, {1, tokens, tokens}), {scores.size(0), tokens, tokens}));
  }

  [[nodiscard]] Tensor disentangled_attention_bias(const Tensor& query, const Tensor& key, const Tensor& relative_pos,
                                                   const Tensor& rel_embeddings) const {
    if (query.tape().modes.capture != nullptr) throw refusal(rules::kScriptedFunctions, {"DeBERTa v2"});
    const std::int64_t batch = query.size(0) / heads;
    const Tensor relative = no_grad::unsqueeze(relative_pos, 1);
    Tensor positions = unsqueeze(open_slices(rel_embeddings, {0, 1}), 0);
    Tensor pos_query, pos_key, score, c2p_att, c2p_pos, p2c_pos, p2c_att;
    if (shares_keys) {
      pos_query = of_positions(query_proj, positions, batch);
      pos_key = of_positions(key_proj, positions, batch);
    } else {
      if (content_to_position) pos_key = of_positions(pos_key_proj, positions, batch);
      if (position_to_content) pos_query = of_positions(pos_query_proj, positions, batch);
    }
    if (content_to_position) {
      c2p_att = batched_product(query, transpose(pos_key, -1, -2));
      c2p_pos = no_grad::clamp(no_grad::add(relative));
      c2p_att = at_distances(c2p_att, c2p_pos);
      score = add_scalar(divide_scalar(c2p_att));
    }
    if (position_to_content) {
      p2c_pos = no_grad::clamp(no_grad::add(no_grad::negate(relative)));
      p2c_att = batched_product(key, transpose(pos_query, -1, -2));
      p2c_att = transpose(at_distances(p2c_att, p2c_pos), -1, -2);
      Tensor scaled = divide_scalar(p2c_att);
      score = score.defined() ? add_in_place(score, scaled) : add_scalar(std::move(scaled));
    }
    drop(positions, pos_query, pos_key, c2p_att, c2p_pos, p2c_pos, p2c_att);
    return score;
  }

  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const Tensor& mask, const Tensor& relative_pos,
                               const Tensor& relative_embeddings) const {
    Tensor attention_mask, rel_embeddings, query, key, value, rel_att, scores, probs;
    const Locals locals(attention_mask, rel_embeddings, query, key, value, rel_att, scores, probs);
    query = scores_of(query_proj, hidden_states);
    key = scores_of(key_proj, hidden_states);
    value = scores_of(value_proj, hidden_states);
    scores = batched_product(query, divide_scalar(transpose(key, -1, -2)));
    if (position_span > 0) {
      rel_embeddings = dropout(relative_embeddings, position_dropout_p);
      rel_att = disentangled_attention_bias(query, key, relative_pos, rel_embeddings);
    }
    if (rel_att.defined()) scores = scores + rel_att;
    const std::int64_t tokens = scores.size(1);
    scores = view(scores, {-1, heads, tokens, tokens});
    attention_mask = no_grad::to(mask, DType::kBool);
    {
      Tensor is_masked = no_grad::bitwise_not(attention_mask);
      Tensor filled = masked_fill(scores, is_masked);
      is_masked.reset();
      scores = std::move(filled);
    }
    probs = softmax(scores);
    probs = dropout(probs, dropout_p);
    Tensor context = batched_product(view(probs, {-1, tokens, tokens}), value);
    context = contiguous(permute(view(context, {-1, heads, tokens, head_dim}), {0, 2, 1, 3}));
    return view(std::move(context), hidden_states.shape());
  }
};

struct DebertaV2Layer {
  DisentangledSelfAttention self;
  ResidualOutput attention_output;
  Linear intermediate;
  ResidualOutput output;
  std::string hidden_act;

  DebertaV2Layer(ModuleBuilder& b, const DebertaV2Spec& spec, const RunSpec& run, double dropout_p)
      : self(b.scope("attention.self", [&] { return DisentangledSelfAttention(b, spec, run); })),
        attention_output(b.scope("attention.output",
                                 [&] { return ResidualOutput(b, spec.hidden_size, spec.hidden_size, dropout_p); })),
        intermediate(b, "intermediate.dense", spec.hidden_size, spec.intermediate_size),
        output(
            b.scope("output", [&] { return ResidualOutput(b, spec.intermediate_size, spec.hidden_size, dropout_p); })),
        hidden_act(spec.hidden_act) {}

  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const Tensor& attention_mask, const Tensor& relative_pos,
                               const Tensor& rel_embeddings) const {
    Tensor attention, intermediate_output;
    const Locals locals(attention, intermediate_output);
    {
      const Tensor self_output = self.forward(hidden_states, attention_mask, relative_pos, rel_embeddings);
      attention = attention_output.forward(self_output, hidden_states);
    }
    intermediate_output = intermediate(attention);
    intermediate_output = activation_function(hidden_act, intermediate_output);
    return output.forward(intermediate_output, attention);
  }
};

/// DebertaV2Model with its task's head.
class DebertaV2Model : public Model {
 public:
  DebertaV2Model(const DebertaV2Spec& spec, const RunSpec& run, ModuleBuilder& b)
      : spec_(spec), run_(run), dropout_p_(dropout_probability(run, spec.hidden_dropout_prob)) {
    check_activation_function(spec.hidden_act);
    check_activation_function(spec.pooler_hidden_act);
    takes_token_types = true;
    b.scope("deberta", [&] {
      embeddings_ = b.scope("embeddings", [&] { return DebertaV2Embeddings(b, spec, dropout_p_); });
      return b.scope("encoder", [&] {
        for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
          layers_.push_back(
              b.scope("layer." + std::to_string(i), [&] { return DebertaV2Layer(b, spec, run, dropout_p_); }));
        }
        if (spec.position_span > 0) {
          rel_embeddings_ = Embedding(b, "rel_embeddings", 2 * spec.position_span, spec.hidden_size);
        }
        if (spec.norms_positions) rel_norm_ = LayerNorm(b, "LayerNorm", spec.hidden_size);
        return 0;
      });
    });
    // _init_weights writes torch.arange into the position buffer.
    no_grad::arange(b.tape, spec.max_position_embeddings).reset();
    build_head(b);
  }

  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    Tensor sequence_output = encode(batch);
    ModelOutput output;
    if (run_.task == Task::kFeatures) {
      output.others.push_back(std::move(sequence_output));
      return output;
    }
    if (run_.task == Task::kSequenceClassification) return classify(sequence_output, batch);
    if (run_.task == Task::kQuestionAnswering) {
      predict_spans(classifier_, sequence_output, batch, output);
      return output;
    }
    Tensor features;  // of each token
    if (run_.task == Task::kTokenClassification) {
      features = dropout(sequence_output, dropout_p_);
      output.logits = classifier_(features);
      set_label_loss(output, batch.labels, spec_.num_labels);
    } else {
      output.logits = masked_lm_head_(sequence_output);
      set_label_loss(output, batch.labels, spec_.vocab_size);
    }
    drop(sequence_output, features);
    return output;
  }

 private:
  void build_head(ModuleBuilder& b) {
    if (run_.task == Task::kFeatures) return;
    if (run_.task == Task::kQuestionAnswering) {
      classifier_ = span_head(b, spec_.hidden_size);
      return;
    }
    if (run_.task == Task::kMaskedLm) {
      masked_lm_head_ = MaskedLmHead(
          b, {.head = "cls.predictions", .dense = "transform.dense", .norm = "transform.LayerNorm"},
          {spec_.hidden_size, spec_.embedding_size, spec_.vocab_size}, spec_.hidden_act, spec_.tie_word_embeddings);
      masked_lm_head_.tie(b, embeddings_.word_embeddings);
      return;
    }
    if (run_.task == Task::kSequenceClassification) {
      pooler_ = Linear(b, "pooler.dense", spec_.hidden_size, spec_.hidden_size);
    }
    classifier_ = Linear(b, "classifier", spec_.hidden_size, spec_.num_labels);
  }

  /// DebertaV2Model.forward. It asks its encoder for the hidden states of all layers, whoever reads them.
  [[nodiscard]] Tensor encode(const Batch& batch) const {
    Tape& tape = batch.input_ids.tape();
    Tensor attention_mask = batch.attention_mask;
    Tensor token_type_ids = batch.token_type_ids;
    if (!attention_mask.defined()) {
      warn_if_padding(batch.input_ids);
      attention_mask = no_grad::ones(tape, batch.input_ids.shape(), DType::kFloat32);
    }
    if (!token_type_ids.defined()) token_type_ids = no_grad::zeros(tape, batch.input_ids.shape(), DType::kInt64);
    std::vector<Tensor> hidden_states{embeddings_.forward(batch.input_ids, token_type_ids, attention_mask)};
    run_layers(hidden_states, attention_mask);
    Tensor sequence_output = hidden_states.back();
    drop(attention_mask, token_type_ids);
    while (!hidden_states.empty()) hidden_states.pop_back();
    return sequence_output;
  }

  /// DebertaV2Encoder.forward: appends what each layer returns.
  void run_layers(std::vector<Tensor>& hidden_states, const Tensor& input_mask) const {
    const std::int64_t batch = input_mask.size(0), tokens = input_mask.size(1);
    Tensor attention_mask = no_grad::multiply(no_grad::view(input_mask, {batch, 1, 1, tokens}),
                                              no_grad::view(input_mask, {batch, 1, tokens, 1}));
    Tensor relative_pos, rel_embeddings;
    if (spec_.position_span > 0) {
      relative_pos = build_relative_position(input_mask.tape(), tokens, spec_.buckets_positions);
      rel_embeddings = rel_embeddings_.weight;
    }
    if (rel_norm_.weight.defined()) rel_embeddings = rel_norm_(rel_embeddings);
    for (const DebertaV2Layer& layer : layers_) {
      hidden_states.push_back(checkpointed(
          run_, {hidden_states.back(), attention_mask}, {relative_pos, rel_embeddings},
          [&layer](const KeptTensors& kept) { return layer.forward(kept[0], kept[1], kept[2], kept[3]); }));
    }
    drop(attention_mask, relative_pos, rel_embeddings);
  }

  /// DebertaV2ForSequenceClassification.forward: labels below 0 are left out.
  [[nodiscard]] ModelOutput classify(Tensor& encoder_layer, const Batch& batch) const {
    ModelOutput output;
    Tensor pooled_output;
    {
      const Tensor context_token =
          dropout(select(open_slices(encoder_layer, {0}), 1), dropout_probability(run_, spec_.pooler_dropout));
      pooled_output = pooler_(context_token);
      pooled_output = activation_function(spec_.pooler_hidden_act, pooled_output);
    }
    pooled_output =
        dropout(pooled_output, dropout_probability(run_, spec_.cls_dropout.value_or(spec_.hidden_dropout_prob)));
    output.logits = classifier_(pooled_output);
    Tensor labels, label_index, labeled_logits;
    if (batch.labels.defined()) {
      const std::int64_t count = batch.labels.size(0);
      label_index = nonzero(no_grad::greater_equal(batch.labels), count);
      labeled_logits = gather(output.logits, no_grad::expand(label_index, {count, spec_.num_labels}));
      labels = no_grad::gather(batch.labels, no_grad::view(label_index, {count}));
      output.loss =
          cross_entropy(to_dtype(view(labeled_logits, {-1, spec_.num_labels}), DType::kFloat32), view(labels, {-1}));
    }
    drop(labels, encoder_layer, pooled_output, label_index, labeled_logits);
    return output;
  }

  DebertaV2Spec spec_;
  RunSpec run_;
  double dropout_p_;
  DebertaV2Embeddings embeddings_;
  std::vector<DebertaV2Layer> layers_;
  Embedding rel_embeddings_;
  LayerNorm rel_norm_;
  MaskedLmHead masked_lm_head_;
  Linear pooler_, classifier_;
};

}  // namespace

std::unique_ptr<Model> build_deberta_v2(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<DebertaV2Model>(architecture.as<DebertaV2Spec>(), run, builder);
}

}  // namespace memcalc
