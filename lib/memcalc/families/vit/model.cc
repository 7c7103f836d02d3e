// ViT and DeiT for image classification: transformers models/vit/modeling_vit.py, models/deit/modeling_deit.py.
// MIRRORS(transformers, "models/deit/modeling_deit.py", "5.17.0")
// MIRRORS(transformers, "models/vit/modeling_vit.py", "5.17.0")
#include <algorithm>

#include "memcalc/families/vit/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/vision.h"
#include "memcalc/symbolic/ops/loss.h"

namespace memcalc {

namespace {

struct SelfAttention {
  Linear q_proj, k_proj, v_proj, o_proj;
  std::int64_t head_dim;
  AttentionOptions options;

  SelfAttention(ModuleBuilder& b, const VitSpec& spec, const AttentionOptions& options)
      : q_proj(b, "q_proj", spec.hidden_size, spec.hidden_size, spec.qkv_bias),
        k_proj(b, "k_proj", spec.hidden_size, spec.hidden_size, spec.qkv_bias),
        v_proj(b, "v_proj", spec.hidden_size, spec.hidden_size, spec.qkv_bias),
        o_proj(b, "o_proj", spec.hidden_size, spec.hidden_size),
        head_dim(spec.hidden_size / spec.num_attention_heads),
        options(options) {}

  [[nodiscard]] Tensor heads(const Linear& projection, const Tensor& hidden_states) const {
    return transpose(view(projection(hidden_states), {hidden_states.size(0), hidden_states.size(1), -1, head_dim}), 1,
                     2);
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const Tensor& mask) const {
    Tensor query_states, key_states, value_states;
    const bool query_last = hidden_states.tape().behaviors.vit_keeps_locals;
    if (!query_last) query_states = heads(q_proj, hidden_states);
    key_states = heads(k_proj, hidden_states);
    value_states = heads(v_proj, hidden_states);
    if (query_last) query_states = heads(q_proj, hidden_states);
    AttentionResult result = attention_interface(query_states, key_states, value_states, mask, options);
    result.output = reshape(result.output, hidden_states.shape());
    if (query_last) drop(query_states, key_states, value_states);  // the projection is a module outside: ViTSelfOutput
    result.output = o_proj(result.output);
    drop(query_states, key_states, value_states);
    return result;
  }
};

struct Layer {
  SelfAttention attention;
  LayerNorm layernorm_before, layernorm_after;
  Linear fc1, fc2;
  std::string hidden_act;
  double dropout_p;

  Layer(ModuleBuilder& b, const VitSpec& spec, const AttentionOptions& options, double dropout_p)
      : attention(b.scope("attention", [&] { return SelfAttention(b, spec, options); })),
        hidden_act(spec.hidden_act),
        dropout_p(dropout_p) {
    const bool norms_last = b.tape.behaviors.vit_keeps_locals;  // before 5.9
    if (!norms_last) add_norms(b, spec);
    fc1 = Linear(b, "mlp.fc1", spec.hidden_size, spec.intermediate_size);
    fc2 = Linear(b, "mlp.fc2", spec.intermediate_size, spec.hidden_size);
    if (norms_last) add_norms(b, spec);
  }

  void add_norms(ModuleBuilder& b, const VitSpec& spec) {
    layernorm_before = LayerNorm(b, "layernorm_before", spec.hidden_size);
    layernorm_after = LayerNorm(b, "layernorm_after", spec.hidden_size);
  }

  [[nodiscard]] Tensor mlp(const Tensor& x) const {
    Tensor hidden_states = fc1(x);
    hidden_states = activation_function(hidden_act, hidden_states);
    hidden_states = fc2(hidden_states);
    return hidden_states;
  }

  /// Before 5.9: each half's tensors live to the layer's end.
  [[nodiscard]] Tensor forward_with_locals(const Tensor& input, const Tensor& mask) const {
    Tensor hidden_states_norm = layernorm_before(input);
    Tensor attention_output = attention.forward(hidden_states_norm, mask).output;
    attention_output = dropout(attention_output, dropout_p);
    Tensor hidden_states = attention_output + input;
    Tensor layer_output = layernorm_after(hidden_states);
    layer_output = activation_function(hidden_act, fc1(layer_output));
    layer_output = dropout(fc2(layer_output), dropout_p) + hidden_states;
    drop(hidden_states, hidden_states_norm, attention_output);
    return layer_output;
  }

  [[nodiscard]] Tensor forward(const Tensor& input, const Tensor& mask) const {
    if (input.tape().behaviors.vit_keeps_locals) return forward_with_locals(input, mask);
    Tensor hidden_states = input;
    Tensor residual = hidden_states;
    hidden_states = layernorm_before(hidden_states);
    AttentionResult attended = attention.forward(hidden_states, mask);
    hidden_states = std::move(attended.output);
    hidden_states = dropout(hidden_states, dropout_p);
    hidden_states = hidden_states + residual;
    residual = hidden_states;
    hidden_states = layernorm_after(hidden_states);
    hidden_states = mlp(hidden_states);
    hidden_states = dropout(hidden_states, dropout_p);
    hidden_states = hidden_states + residual;
    drop(residual, attended.weights);
    return hidden_states;
  }
};

class VitModel : public Model {
 public:
  VitModel(const VitSpec& spec, const RunSpec& run, ModuleBuilder& b);
  [[nodiscard]] ModelOutput forward(const Batch& batch) override;

 private:
  [[nodiscard]] Tensor embed(const Tensor& pixel_values) const;

  VitSpec spec_;
  RunSpec run_;
  double dropout_p_;
  Tensor cls_token_, distillation_token_, position_embeddings_;
  Conv2d projection_;
  std::vector<Layer> layers_;
  LayerNorm layernorm_;
  Linear classifier_;
};

VitModel::VitModel(const VitSpec& spec, const RunSpec& run, ModuleBuilder& b)
    : spec_(spec), run_(run), dropout_p_(dropout_probability(run, spec.hidden_dropout_prob)) {
  check_activation_function(spec.hidden_act);
  const AttentionOptions options{.implementation = run.attention,
                                 .dropout = dropout_probability(run, spec.attention_probs_dropout_prob),
                                 .softmax_in_float32 = true};
  const std::int64_t side = spec.image_size / spec.patch_size;
  b.scope(spec.is_deit ? "deit" : "vit", [&] {
    cls_token_ = b.parameter("embeddings.cls_token", {1, 1, spec.hidden_size});
    const std::size_t first = b.parameters.size();
    projection_ = Conv2d(b, "embeddings.patch_embeddings.projection", spec.num_channels, spec.hidden_size,
                         spec.patch_size, {.stride = spec.patch_size}, true);
    position_embeddings_ =
        b.parameter("embeddings.position_embeddings", {1, side * side + (spec.is_deit ? 2 : 1), spec.hidden_size});
    if (spec.is_deit) distillation_token_ = b.parameter("embeddings.distillation_token", {1, 1, spec.hidden_size});
    // A module's own parameters come before its submodules'.
    std::rotate(b.parameters.begin() + static_cast<std::ptrdiff_t>(first), b.parameters.end() - (spec.is_deit ? 2 : 1),
                b.parameters.end());
    for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
      layers_.push_back(b.scope("layers." + std::to_string(i), [&] { return Layer(b, spec, options, dropout_p_); }));
    }
    layernorm_ = LayerNorm(b, "layernorm", spec.hidden_size);
    return 0;
  });
  classifier_ = Linear(b, "classifier", spec.hidden_size, spec.num_labels);
}

Tensor VitModel::embed(const Tensor& pixel_values) const {
  const std::int64_t batch = pixel_values.size(0);
  Tensor embeddings = projection_(pixel_values);
  embeddings = transpose(view(embeddings, {batch, spec_.hidden_size, -1}), 1, 2);
  const Tensor cls_tokens = expand(cls_token_, {batch, -1, -1});
  if (spec_.is_deit) {
    const Tensor distillation_tokens = expand(distillation_token_, {batch, -1, -1});
    embeddings = cat3(cls_tokens, distillation_tokens, embeddings, 1);
  } else {
    embeddings = cat(cls_tokens, embeddings, 1);
  }
  embeddings = embeddings + position_embeddings_;
  embeddings = dropout(embeddings, dropout_p_);
  return embeddings;
}

ModelOutput VitModel::forward(const Batch& batch) {
  ModelOutput output;
  Tensor sequence_output;
  {
    const Tensor pixel_values = to_dtype(batch.pixel_values, projection_.weight.dtype());
    Tensor hidden_states = embed(pixel_values);
    Tensor embedding_output = hidden_states;
    const Tensor mask = create_bidirectional_mask(run_, hidden_states, batch);  // none but under torch.compile
    for (const Layer& layer : layers_) {
      hidden_states = checkpointed(run_, {hidden_states}, {},
                                   [&layer, mask](const KeptTensors& kept) { return layer.forward(kept[0], mask); });
    }
    sequence_output = layernorm_(hidden_states);
    drop(embedding_output, hidden_states);
  }
  const Tensor pooled_output = open_slices(select(open_slices(sequence_output, {0}), 1), {1});
  output.logits = classifier_(pooled_output);
  if (batch.labels.defined()) {
    output.loss = cross_entropy(view(output.logits, {-1, spec_.num_labels}), view(batch.labels, {-1}),
                                reduction_beside(batch.number_of_items));
    if (batch.number_of_items.defined()) output.loss = divide(output.loss, batch.number_of_items);
  }
  return output;
}

}  // namespace

std::unique_ptr<Model> build_vit(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<VitModel>(architecture.as<VitSpec>(), run, builder);
}

}  // namespace memcalc
