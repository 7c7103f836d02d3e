// MIRRORS(transformers, "models/pixtral/modeling_pixtral.py", "5.17.0")
#include "memcalc/families/ministral3/pixtral_tower.h"
#include "memcalc/models/tower_python.h"

#include <utility>

#include "memcalc/symbolic/autocast.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// What GatedMlp reads of a decoder's sizes.
RotaryDecoderSpec sizes_of_mlp(const PixtralTowerSpec& spec) {
  RotaryDecoderSpec sizes;
  sizes.hidden_size = spec.hidden_size;
  sizes.hidden_act = spec.hidden_act;
  return sizes;
}

/// A Python list lets go of its last element first.
void clear_list(std::vector<Tensor>& list) {
  while (!list.empty()) list.pop_back();
}

}  // namespace

Tensor side_of_image(const Tensor& sizes) {
  return no_grad::floor_divide(no_grad::select(no_grad::select(sizes, 0), 0));
}

PixtralLayer::PixtralLayer(ModuleBuilder& b, const PixtralTowerSpec& spec, const RunSpec& run)
    : attention_norm(b, "attention_norm", spec.hidden_size),
      feed_forward(
          b.scope("feed_forward", [&] { return GatedMlp(b, sizes_of_mlp(spec), spec.intermediate_size, false); })),
      num_heads(spec.num_attention_heads),
      options{.implementation = run.attention,
              .dropout = dropout_probability(run, spec.attention_dropout),
              .softmax_in_float32 = true} {
  const auto projection = [&](std::string_view name) {
    return Linear(b, name, spec.hidden_size, spec.hidden_size, false);
  };
  k_proj = projection("attention.k_proj");
  v_proj = projection("attention.v_proj");
  q_proj = projection("attention.q_proj");
  o_proj = projection("attention.o_proj");
  ffn_norm = RmsNorm(b, "ffn_norm", spec.hidden_size);
}

AttentionResult PixtralLayer::attention(const Tensor& hidden_states, const Tensor& mask, const Tensor& cos,
                                        const Tensor& sin) const {
  Tensor query_states, key_states, value_states;
  const Locals locals(query_states, key_states, value_states);
  query_states = q_proj(hidden_states);
  key_states = k_proj(hidden_states);
  value_states = v_proj(hidden_states);
  for (Tensor* states : {&query_states, &key_states, &value_states}) {
    *states = transpose(view(*states, {states->size(0), states->size(1), num_heads, -1}), 1, 2);
  }
  {
    const Tensor cos_of_heads = unsqueeze(cos, 0), sin_of_heads = unsqueeze(sin, 0);
    Tensor q_embed = rotate(query_states, cos_of_heads, sin_of_heads);
    Tensor k_embed = rotate(key_states, cos_of_heads, sin_of_heads);
    query_states = std::move(q_embed);
    key_states = std::move(k_embed);
  }
  AttentionResult result = attention_interface(query_states, key_states, value_states, mask, options);
  result.output = flatten_heads(result.output, hidden_states);
  result.output = o_proj(result.output);
  return result;
}

Tensor PixtralLayer::forward(const Tensor& input, const Tensor& mask, const Tensor& cos, const Tensor& sin) const {
  Tensor hidden_states, residual, others;
  const Locals locals(hidden_states, residual, others);
  residual = input;
  hidden_states = attention_norm(input);
  {
    AttentionResult attended = attention(hidden_states, mask, cos, sin);
    hidden_states = std::move(attended.output);
    others = std::move(attended.weights);
  }
  hidden_states = residual + hidden_states;
  residual = hidden_states;
  hidden_states = ffn_norm(hidden_states);
  hidden_states = feed_forward.forward(hidden_states);
  return residual + hidden_states;
}

PixtralTower::PixtralTower(ModuleBuilder& b, const PixtralTowerSpec& spec, const RunSpec& run)
    : spec_(spec), run_(run), patches_require_grad_(b.first_embedding_requires_grad) {
  check_activation_function(spec.hidden_act);
  // Each of a model's towers has input embeddings of its own.
  const Scoped inputs_of_tower(b.first_embedding_requires_grad, false);
  patch_conv_ =
      Conv2d(b, "patch_conv", spec.num_channels, spec.hidden_size, spec.patch_size, {.stride = spec.patch_size});
  ln_pre_ = RmsNorm(b, "ln_pre", spec.hidden_size);
  b.parameters.back().decays = true;  // the Trainer knows norms by their names, and this one is none to it
  for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
    layers_.push_back(b.scope("transformer.layers." + std::to_string(i), [&] { return PixtralLayer(b, spec, run); }));
  }
  patch_positional_embedding_ = RotaryEmbedding(b, spec.hidden_size / spec.num_attention_heads);
}

Tensor PixtralTower::patch_conv(const Tensor& pixels) const {
  Tensor patch_embeds = patch_conv_(to_dtype(pixels, patch_conv_.weight.dtype()));
  Tape& tape = patch_embeds.tape();
  if (patches_require_grad_ && tape.modes.grad_enabled && !patch_embeds.requires_grad()) {
    tape.autograd.require_gradient(patch_embeds);
  }
  return patch_embeds;
}

PixtralTower::Places PixtralTower::position_ids(Tape& tape, std::int64_t images, std::int64_t height,
                                                std::int64_t width) {
  std::vector<Tensor> of_images;
  Places places;
  for (std::int64_t i = 0; i < images; ++i) {
    Tensor rows = no_grad::arange(tape, height), columns = no_grad::arange(tape, width);
    places.hpos_ids = std::move(rows);
    places.wpos_ids = std::move(columns);
    // torch.meshgrid's are expanded views, which flatten() copies.
    Tensor h = no_grad::repeat_interleave(places.hpos_ids, width);
    Tensor w = no_grad::repeat_interleave(places.wpos_ids, height);
    of_images.push_back(no_grad::cat(no_grad::unsqueeze(h, -1), no_grad::unsqueeze(w, -1), -1));
    drop(w, h);
  }
  const NoGrad no_grad(tape.modes);
  places.position_ids = concatenate(of_images, 0);
  clear_list(of_images);
  return places;
}

RotaryPositions PixtralTower::positions(const Tensor& x, const Tensor& position_ids) const {
  Tape& tape = x.tape();
  const NoGrad no_grad(tape.modes);
  Tensor expanded = to_dtype(unsqueeze(position_ids, 2), DType::kFloat32), freqs;
  RotaryPositions result;
  {
    const WithoutAutocast without_autocast(tape.modes.autocast);
    const Tensor& inverse = patch_positional_embedding_.inverse_frequencies;
    freqs = matmul(expanded, unsqueeze(inverse, 0));
    result.cos = multiply_scalar(cosine(freqs));
    result.sin = multiply_scalar(sine(freqs));
  }
  const auto recomposed = [](const Tensor& freq) {
    const std::vector<Tensor> halves = split(freq, 2, 2);
    const Tensor freq_hw = cat(select(halves[0], 1), select(halves[1], 1), -1);
    return cat(freq_hw, freq_hw, -1);
  };
  result.cos = recomposed(result.cos);
  result.sin = recomposed(result.sin);
  Tensor cos = to_dtype(result.cos, x.dtype()), sin = to_dtype(result.sin, x.dtype());
  drop(expanded, freqs, result.cos, result.sin);
  result.cos = std::move(cos);
  result.sin = std::move(sin);
  return result;
}

std::vector<Tensor> PixtralTower::forward(const Tensor& pixels, const Tensor& sizes) const {
  const std::int64_t images = pixels.size(0), rows = pixels.size(2) / spec_.patch_size,
                     columns = pixels.size(3) / spec_.patch_size, patches = images * rows * columns;
  Tape& tape = pixels.tape();
  Tensor patch_embeds = patch_conv(pixels);
  std::vector<Tensor> patch_embeds_list = unbind(patch_embeds, 0), flat;
  Tensor patch = patch_embeds_list.back();
  for (const Tensor& embed : patch_embeds_list) {
    // embed[..., : size[0] // patch_size, : size[1] // patch_size] is all of it; the host reads both bounds.
    const std::vector<Tensor> bounds = {side_of_image(sizes), side_of_image(sizes)};
    for (const Tensor& bound : bounds) read_on_host(bound);
    flat.push_back(transpose(view(embed, {embed.size(0), -1}), 0, 1));
  }
  patch_embeds = concatenate(flat, 0);
  while (!flat.empty()) flat.pop_back();
  patch_embeds = unsqueeze(patch_embeds, 0);
  patch_embeds = ln_pre_(patch_embeds);
  Places places = position_ids(tape, images, rows, columns);
  RotaryPositions own = positions(patch_embeds, places.position_ids);
  Tensor attention_mask = no_grad::full(tape, {patches, patches}, patch_embeds.dtype());
  attention_mask = no_grad::expand(attention_mask, {1, 1, patches, patches});
  std::vector<Tensor> all = {patch_embeds};
  Tensor hidden_states = std::move(patch_embeds);
  TowerPython python(tape);
  for (const PixtralLayer& layer : layers_) {
    python.layer(400);
    hidden_states =
        checkpointed(run_, {hidden_states, attention_mask}, {own.cos, own.sin, places.position_ids},
                     [&layer](const KeptTensors& kept) { return layer.forward(kept[0], kept[1], kept[2], kept[3]); });
    all.push_back(hidden_states);
  }
  clear_list(patch_embeds_list);
  drop(places.position_ids, patch, places.hpos_ids, places.wpos_ids, own.cos, own.sin, attention_mask);
  return all;
}

}  // namespace memcalc
