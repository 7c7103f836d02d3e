// MIRRORS(transformers, "models/siglip/modeling_siglip.py", "5.17.0")
#include "memcalc/families/clip/tower.h"
#include "memcalc/models/tower_python.h"

#include <string>
#include <utility>

#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

ClipAttention::ClipAttention(ModuleBuilder& b, const ClipTower& tower, const AttentionOptions& options)
    : k_proj(b, "k_proj", tower.hidden_size, tower.hidden_size),
      v_proj(b, "v_proj", tower.hidden_size, tower.hidden_size),
      q_proj(b, "q_proj", tower.hidden_size, tower.hidden_size),
      out_proj(b, "out_proj", tower.hidden_size, tower.hidden_size),
      head_dim(tower.hidden_size / tower.num_attention_heads),
      siglip(tower.siglip),
      options(options) {}

Tensor ClipAttention::heads(const Tensor& projected) const {
  return transpose(view(projected, {projected.size(0), projected.size(1), -1, head_dim}), 1, 2);
}

AttentionResult ClipAttention::forward(const Tensor& hidden_states, const Tensor& mask) const {
  const auto projected = [&](const Linear& projection) {
    Tensor states = projection(hidden_states);
    return siglip ? heads(states) : states;
  };
  Tensor queries = projected(q_proj);
  Tensor keys = projected(k_proj);
  Tensor values = projected(v_proj);
  if (!siglip) {
    queries = heads(queries);
    keys = heads(keys);
    values = heads(values);
  }
  AttentionResult result = attention_interface(queries, keys, values, mask, options);
  result.output = reshape(result.output, hidden_states.shape());
  result.output = out_proj(result.output);
  drop(queries, keys, values);
  return result;
}

ClipLayer::ClipLayer(ModuleBuilder& b, const ClipTower& tower, const AttentionOptions& options)
    : hidden_act(tower.hidden_act) {
  const auto norm = [&](std::string_view name) { return LayerNorm(b, name, tower.hidden_size); };
  if (tower.siglip) layer_norm1 = norm("layer_norm1");
  self_attn = b.scope("self_attn", [&] { return ClipAttention(b, tower, options); });
  if (!tower.siglip) layer_norm1 = norm("layer_norm1");
  if (tower.siglip) layer_norm2 = norm("layer_norm2");
  fc1 = Linear(b, "mlp.fc1", tower.hidden_size, tower.intermediate_size);
  fc2 = Linear(b, "mlp.fc2", tower.intermediate_size, tower.hidden_size);
  if (!tower.siglip) layer_norm2 = norm("layer_norm2");
}

Tensor ClipLayer::mlp(const Tensor& x) const {
  Tensor hidden_states = fc1(x);
  hidden_states = activation_function(hidden_act, hidden_states);
  hidden_states = fc2(hidden_states);
  return hidden_states;
}

Tensor ClipLayer::forward(const Tensor& input, const Tensor& mask) const {
  Tensor residual = input;
  Tensor hidden_states = layer_norm1(input);
  AttentionResult attended = self_attn.forward(hidden_states, mask);
  hidden_states = std::move(attended.output);
  hidden_states = residual + hidden_states;
  residual = hidden_states;
  hidden_states = layer_norm2(hidden_states);
  hidden_states = mlp(hidden_states);
  hidden_states = residual + hidden_states;
  drop(residual, attended.weights);
  return hidden_states;
}

ClipEncoder::ClipEncoder(ModuleBuilder& b, const RunSpec& run, const ClipTower& tower, bool causal)
    : layer_python(tower.siglip ? 1240 : 1430) {
  check_activation_function(tower.hidden_act);
  const AttentionOptions options{.implementation = run.attention,
                                 .dropout = dropout_probability(run, tower.attention_dropout),
                                 .causal = causal,
                                 .softmax_in_float32 = true};
  for (std::int64_t i = 0; i < tower.num_hidden_layers; ++i) {
    layers.push_back(b.scope("encoder.layers." + std::to_string(i), [&] { return ClipLayer(b, tower, options); }));
  }
}

Tensor ClipEncoder::forward(const RunSpec& run, Tensor hidden_states, const Tensor& mask,
                            std::vector<Tensor>* all) const {
  TowerPython python(hidden_states.tape());
  for (const ClipLayer& layer : layers) {
    python.layer(layer_python);
    if (all != nullptr) all->push_back(hidden_states);
    hidden_states = checkpointed(run, {hidden_states, mask}, {},
                                 [&layer](const KeptTensors& kept) { return layer.forward(kept[0], kept[1]); });
  }
  if (all != nullptr) all->push_back(hidden_states);
  return hidden_states;
}

ClipVisionModel::ClipVisionModel(ModuleBuilder& b, const RunSpec& run, const ImageTowerSpec& spec)
    : siglip_(spec.siglip), patches_require_grad_(b.first_embedding_requires_grad) {
  // Each of a model's towers has input embeddings of its own, and position_embedding is none of them.
  const Scoped inputs_of_tower(b.first_embedding_requires_grad, false);
  const std::int64_t width = spec.tower.hidden_size, side = spec.image_size / spec.patch_size;
  if (!siglip_) class_embedding_ = b.parameter("embeddings.class_embedding", {width});
  patch_embedding_ = Conv2d(b, "embeddings.patch_embedding", spec.num_channels, width, spec.patch_size,
                            {.stride = spec.patch_size}, siglip_);
  const std::int64_t positions = side * side + (siglip_ ? 0 : 1);
  position_embedding_ = Embedding(b, "embeddings.position_embedding", positions, width);
  position_ids_ = b.buffer({1, positions}, DType::kInt64);
  if (!siglip_) pre_layrnorm_ = LayerNorm(b, "pre_layrnorm", width);
  encoder_.emplace_back(b, run, spec.tower, false);
  post_layernorm_ = LayerNorm(b, "post_layernorm", width);
  no_grad::arange(b.tape, position_ids_.elements()).reset();  // _init_weights makes them once more
}

Tensor ClipVisionModel::embeddings(const Tensor& pixel_values) const {
  const std::int64_t batch = pixel_values.size(0);
  Tensor patch_embeds = patch_embedding_(to_dtype(pixel_values, patch_embedding_.weight.dtype()));
  Tape& tape = patch_embeds.tape();
  if (patches_require_grad_ && tape.modes.grad_enabled && !patch_embeds.requires_grad()) {
    tape.autograd.require_gradient(patch_embeds);
  }
  if (siglip_) {
    Tensor embeddings = transpose(view(patch_embeds, {batch, patch_embeds.size(1), -1}), 1, 2);
    embeddings = embeddings + position_embedding_(position_ids_);
    patch_embeds.reset();
    return embeddings;
  }
  patch_embeds = transpose(view(patch_embeds, {batch, patch_embeds.size(1), -1}), 1, 2);
  const Tensor class_embeds = expand(class_embedding_, {batch, 1, -1});
  Tensor embeddings = cat(class_embeds, patch_embeds, 1);
  embeddings = embeddings + position_embedding_(position_ids_);
  return embeddings;
}

PooledStates ClipVisionModel::forward(const RunSpec& run, const Tensor& pixel_values, bool keeps_all) const {
  Tensor hidden_states = embeddings(pixel_values);
  if (!siglip_) hidden_states = pre_layrnorm_(hidden_states);
  PooledStates output;
  output.last_hidden_state = encoder_[0].forward(run, hidden_states, {}, keeps_all ? &output.hidden_states : nullptr);
  if (siglip_) {
    output.last_hidden_state = post_layernorm_(output.last_hidden_state);
  } else {
    output.pooler_output = open_slices(select(open_slices(output.last_hidden_state, {0}), 1), {1});
    output.pooler_output = post_layernorm_(output.pooler_output);
  }
  hidden_states.reset();
  return output;
}

}  // namespace memcalc
