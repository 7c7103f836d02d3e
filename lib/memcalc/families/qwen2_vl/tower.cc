// The towers of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: transformers models/qwen2_vl/modeling_qwen2_vl.py,
// models/qwen2_5_vl/modeling_qwen2_5_vl.py, models/qwen3_vl/modeling_qwen3_vl.py, vision_utils.py.
// MIRRORS(transformers, "vision_utils.py", "5.17.0")
#include "memcalc/families/qwen2_vl/tower.h"
#include "memcalc/models/tower_python.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/autocast.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/conv.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/scan.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// An operator on tensors alone by its row of the table, whose result has a size that depends on values.
Tensor of_given_size(std::string_view name, std::vector<Tensor> tensors, const GivenResult& given) {
  std::vector<BoundArgument> slots;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    slots.push_back({.kind = BoundArgument::Kind::kValue, .integer = static_cast<std::int64_t>(i)});
  }
  RecordedCall call(tensors.front().tape(), name, slots, tensors, {}, {&given, 1});
  find_operator(name)->run(call);
  return std::move(call.results.front());
}

RotaryDecoderSpec sizes_of(const QwenVisionParts& parts) {
  RotaryDecoderSpec sizes;
  sizes.hidden_size = parts.hidden_size;
  sizes.intermediate_size = parts.intermediate_size;
  sizes.hidden_act = parts.hidden_act;
  return sizes;
}

QwenVisionNorm norm_of(ModuleBuilder& b, const QwenVisionParts& parts, std::string_view name) {
  if (parts.kind == QwenVision::k25) {
    RmsNorm norm(b, name, parts.hidden_size);
    b.parameters.back().decays = true;  // by its name it is no norm (trainer.py, get_decay_parameter_names)
    return norm;
  }
  return [norm = LayerNorm(b, name, parts.hidden_size)](const Tensor& x) { return norm(x); };
}

}  // namespace

QwenVisionAttention::QwenVisionAttention(ModuleBuilder& b, const QwenVisionParts& parts, const RunSpec& run)
    : qkv(b, "qkv", parts.hidden_size, 3 * parts.hidden_size),
      proj(b, "proj", parts.hidden_size, parts.hidden_size),
      num_heads(parts.num_heads),
      options{.implementation = run.attention, .softmax_in_float32 = true} {}

Tensor QwenVisionAttention::forward(const Tensor& hidden_states, const Tensor& cu_seqlens,
                                    const std::vector<std::int64_t>& pieces, const Tensor& cos_of_places,
                                    const Tensor& sin_of_places) const {
  const std::int64_t seq_length = hidden_states.size(0);
  Tensor query_states, key_states, value_states;
  {
    std::vector<Tensor> states =
        unbind(permute(reshape(qkv(hidden_states), {seq_length, 3, num_heads, -1}), {1, 0, 2, 3}), 0);
    query_states = std::move(states[0]);
    key_states = std::move(states[1]);
    value_states = std::move(states[2]);
  }
  {
    const DType query_dtype = query_states.dtype(), key_dtype = key_states.dtype();
    Tensor q = to_dtype(query_states, DType::kFloat32);
    Tensor k = to_dtype(key_states, DType::kFloat32);
    Tensor cos = to_dtype(unsqueeze(cos_of_places, cos_of_places.rank() - 1), DType::kFloat32);
    Tensor sin = to_dtype(unsqueeze(sin_of_places, sin_of_places.rank() - 1), DType::kFloat32);
    Tensor q_embed = rotate(q, cos, sin);
    Tensor k_embed = rotate(k, cos, sin);
    q_embed = to_dtype(q_embed, query_dtype);
    k_embed = to_dtype(k_embed, key_dtype);
    drop(q, k, cos, sin);
    query_states = std::move(q_embed);
    key_states = std::move(k_embed);
  }
  const auto in_a_batch = [](const Tensor& x) { return unsqueeze(transpose(x, 0, 1), 0); };
  query_states = in_a_batch(query_states);
  key_states = in_a_batch(key_states);
  value_states = in_a_batch(value_states);
  const std::int64_t ends = cu_seqlens.size(0);
  Tensor lengths =
      no_grad::subtract(no_grad::slice(cu_seqlens, 0, 1, ends - 1), no_grad::slice(cu_seqlens, 0, 0, ends - 1));
  std::array<std::vector<Tensor>, 3> splits;
  for (std::size_t i = 0; i < 3; ++i) {
    read_on_host(lengths);
    splits[i] = split_with_sizes(i == 0 ? query_states : i == 1 ? key_states : value_states, 2, pieces);
  }
  std::vector<Tensor> attn_outputs;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    attn_outputs.push_back(attention_interface(splits[0][i], splits[1][i], splits[2][i], {}, options).output);
  }
  Tensor attn_output = concatenate(attn_outputs, 1);
  attn_output = reshape(attn_output, {seq_length, -1});
  attn_output = proj(attn_output);
  drop(query_states, key_states, value_states);
  for (std::size_t i = 3; i-- > 0;) {
    while (!splits[i].empty()) splits[i].pop_back();
  }
  while (!attn_outputs.empty()) attn_outputs.pop_back();
  lengths.reset();
  return attn_output;
}

QwenVisionMlp::QwenVisionMlp(ModuleBuilder& b, const QwenVisionParts& parts)
    : fc1(b, parts.kind == QwenVision::k3 ? "linear_fc1" : "fc1", parts.hidden_size, parts.intermediate_size),
      fc2(b, parts.kind == QwenVision::k3 ? "linear_fc2" : "fc2", parts.intermediate_size, parts.hidden_size),
      act(parts.hidden_act) {}

Tensor QwenVisionMlp::forward(const Tensor& x) const {
  Tensor activated;
  {
    const Tensor projected = fc1(x);
    activated = activation_function(act, projected);
  }
  return fc2(activated);
}

QwenVisionBlock::QwenVisionBlock(ModuleBuilder& b, const QwenVisionParts& parts, const RunSpec& run)
    : norm1(norm_of(b, parts, "norm1")),
      norm2(norm_of(b, parts, "norm2")),
      attn(b.scope("attn", [&] { return QwenVisionAttention(b, parts, run); })) {
  b.scope("mlp", [&] {
    if (parts.kind == QwenVision::k25) {
      gated_mlp.emplace(b, sizes_of(parts), true);
    } else {
      mlp.emplace(b, parts);
    }
    return 0;
  });
}

Tensor QwenVisionBlock::forward(const Tensor& input, const Tensor& cu_seqlens, const std::vector<std::int64_t>& pieces,
                                const Tensor& cos, const Tensor& sin) const {
  Tensor half;
  {
    const Tensor normed = norm1(input);
    half = attn.forward(normed, cu_seqlens, pieces, cos, sin);
  }
  Tensor hidden_states = input + std::move(half);
  {
    const Tensor normed = norm2(hidden_states);
    half = gated_mlp ? gated_mlp->forward(normed) : mlp->forward(normed);
  }
  hidden_states = hidden_states + std::move(half);
  return hidden_states;
}

QwenPatchMerger::QwenPatchMerger(ModuleBuilder& b, const QwenVisionParts& parts, bool behind)
    : norm(b, "norm", parts.hidden_size * (behind ? parts.merged() : 1)),
      linear_fc1(b, "linear_fc1", parts.hidden_size * parts.merged(), parts.hidden_size * parts.merged()),
      linear_fc2(b, "linear_fc2", parts.hidden_size * parts.merged(), parts.out_hidden_size),
      hidden_size(parts.hidden_size * parts.merged()),
      behind(behind) {}

Tensor QwenPatchMerger::forward(const Tensor& x) const {
  Tensor result;
  {
    const Tensor merged =
        behind ? view(norm(view(x, {-1, hidden_size})), {-1, hidden_size}) : view(norm(x), {-1, hidden_size});
    Tensor projected = linear_fc1(merged);
    projected = gelu(projected);
    result = linear_fc2(projected);
    projected.reset();
  }
  return result;
}

QwenVisionTower::QwenVisionTower(ModuleBuilder& b, const QwenVisionParts& parts, const RunSpec& run)
    : parts_(parts),
      run_(run),
      // Qwen3-VL's tower names no input embeddings.
      patches_require_grad_(parts.kind != QwenVision::k3 && b.first_embedding_requires_grad) {
  const Scoped inputs_of_tower(b.first_embedding_requires_grad, false);
  check_activation_function(parts.hidden_act);
  const bool is_3 = parts.kind == QwenVision::k3;
  const std::int64_t t = parts.temporal_patch_size, p = parts.patch_size;
  patch_weight_ = b.parameter("patch_embed.proj.weight", {parts.hidden_size, parts.in_channels, t, p, p});
  if (is_3) {
    patch_bias_ = b.parameter("patch_embed.proj.bias", {parts.hidden_size}, false);
    pos_embed_ = Embedding(b, "pos_embed", parts.num_position_embeddings, parts.hidden_size);
  }
  rotary_pos_emb_ = RotaryEmbedding(b, parts.hidden_size / parts.num_heads / 2);
  for (std::int64_t i = 0; i < parts.depth; ++i) {
    blocks_.push_back(b.scope("blocks." + std::to_string(i), [&] { return QwenVisionBlock(b, parts, run); }));
  }
  if (is_3) {
    merger_ = b.scope("merger", [&] { return QwenPatchMerger(b, parts, false); });
    for (std::size_t i = 0; i < parts.deepstack_layers.size(); ++i) {
      deepstack_mergers_.push_back(
          b.scope("deepstack_merger_list." + std::to_string(i), [&] { return QwenPatchMerger(b, parts, true); }));
    }
  } else {
    const std::int64_t wide = parts.hidden_size * parts.merged();
    ln_q_ = norm_of(b, parts, "merger.ln_q");
    mlp_0_ = Linear(b, "merger.mlp.0", wide, wide);
    mlp_2_ = Linear(b, "merger.mlp.2", wide, parts.out_hidden_size);
  }
  rotary_pos_emb_.initialize(b).reset();
}

/// get_vision_position_ids: [patches of all images, 2]
Tensor QwenVisionTower::position_ids(const Tensor& grid_thw, const ImageGrid& grid) const {
  Tape& tape = grid_thw.tape();
  const std::int64_t images = grid_thw.size(0);
  Tensor spatial_merge_size = no_grad::expand(no_grad::from_list(tape, {1}), {images});
  read_on_host(grid_thw);
  read_on_host(spatial_merge_size);
  std::vector<Tensor> of_images;
  Tensor hpos_ids, wpos_ids;
  const Shape blocks{grid.height / grid.merge, grid.merge, grid.width / grid.merge, grid.merge};
  for (std::int64_t i = 0; i < images; ++i) {
    {
      Tensor rows = no_grad::arange(tape, grid.height);
      Tensor columns = no_grad::arange(tape, grid.width);
      hpos_ids = no_grad::expand(no_grad::view(std::move(rows), {grid.height, 1}), {grid.height, grid.width});
      wpos_ids = no_grad::expand(no_grad::view(std::move(columns), {1, grid.width}), {grid.height, grid.width});
    }
    hpos_ids = reshape(transpose(reshape(hpos_ids, blocks), 1, 2), {-1});
    wpos_ids = reshape(transpose(reshape(wpos_ids, blocks), 1, 2), {-1});
    const Tensor stacked = cat(unsqueeze(hpos_ids, 1), unsqueeze(wpos_ids, 1), 1);
    of_images.push_back(no_grad::repeat(stacked, {1, 1}));
  }
  Tensor result = concatenate(of_images, 0);
  spatial_merge_size.reset();
  while (!of_images.empty()) of_images.pop_back();
  drop(hpos_ids, wpos_ids);
  return result;
}

/// get_vision_cu_seqlens
QwenVisionTower::Lengths QwenVisionTower::whole_images(const Tensor& grid_thw, const ImageGrid& grid) const {
  const std::int64_t images = grid_thw.size(0);
  Lengths result;
  Tensor seqlens;
  {
    const Tensor areas = no_grad::multiply(no_grad::select(grid_thw, 1), no_grad::select(grid_thw, 1));
    const Tensor frames = no_grad::select(grid_thw, 1);
    seqlens = of_given_size("repeat_interleave", {areas, frames}, {{images}, DType::kInt64});
  }
  const Tensor ends = cumulative_sum(seqlens, 0, DType::kInt32);
  result.ends = pad_to(ends, {images + 1});
  result.lengths.assign(static_cast<std::size_t>(images), grid.patches());
  return result;
}

/// get_vision_window_index, whose index of places stays on the host.
QwenVisionTower::Lengths QwenVisionTower::windows(const Tensor& grid_thw, const ImageGrid& grid) const {
  Tape& tape = grid_thw.tape();
  const std::int64_t images = grid_thw.size(0);
  const std::int64_t side = parts_.window_size / parts_.spatial_merge_size / parts_.patch_size;
  read_on_host(grid_thw);
  Lengths result;
  const std::vector<std::int64_t> of_image = grid.windows(side);
  for (std::int64_t i = 0; i < images; ++i) {
    result.lengths.insert(result.lengths.end(), of_image.begin(), of_image.end());
  }
  const Tensor counted = no_grad::from_list(tape, {1 + images * grid.counted_windows(side)}, DType::kInt32);
  result.ends = of_given_size("unique_consecutive", {counted},
                              {{1 + static_cast<std::int64_t>(result.lengths.size())}, DType::kInt32});
  return result;
}

Tensor QwenVisionTower::patch_embed(const Tensor& pixels) const {
  const std::int64_t t = parts_.temporal_patch_size, p = parts_.patch_size;
  const Tensor patches = view(pixels, {-1, parts_.in_channels, t, p, p});
  Tensor embedded =
      convolution(to_dtype(patches, patch_weight_.dtype()), patch_weight_, patch_bias_, {.stride = {t, p, p}});
  embedded = view(embedded, {-1, parts_.hidden_size});
  Tape& tape = embedded.tape();
  if (patches_require_grad_ && tape.modes.grad_enabled && !embedded.requires_grad()) {
    tape.autograd.require_gradient(embedded);
  }
  return embedded;
}

RotaryPositions QwenVisionTower::rotary_pos_emb(const Tensor& position_ids) const {
  Tape& tape = position_ids.tape();
  const NoGrad no_grad(tape.modes);
  Tensor expanded = to_dtype(unsqueeze(position_ids, 2), DType::kFloat32);
  Tensor freqs;
  RotaryPositions result;
  {
    const WithoutAutocast without_autocast(tape.modes.autocast);
    freqs = expanded * rotary_pos_emb_.inverse_frequencies;
    result.cos = multiply_scalar(cosine(freqs));
    result.sin = multiply_scalar(sine(freqs));
  }
  const auto recomposed = [](const Tensor& freq) {
    Tensor freq_h = select(freq, 1), freq_w = select(freq, 1);
    const Tensor freq_hw = cat(freq_h, freq_w, -1);
    Tensor whole = cat(freq_hw, freq_hw, -1);
    drop(freq_h, freq_w);
    return whole;
  };
  result.cos = recomposed(result.cos);
  result.sin = recomposed(result.sin);
  drop(expanded, freqs);
  return result;
}

Tensor QwenVisionTower::permuted(const Tensor& x, const Tensor& window_index) const {
  const std::int64_t length = x.size(0);
  Tensor input_tensor = reshape(x, {length / parts_.merged(), parts_.merged(), -1});
  input_tensor = index_rows(input_tensor, window_index);
  return reshape(input_tensor, {length, -1});
}

Tensor QwenVisionTower::merger(const Tensor& x) const {
  Tensor projected;
  {
    const Tensor merged = view(ln_q_(x), {-1, parts_.hidden_size * parts_.merged()});
    projected = mlp_0_(merged);
    projected = gelu(projected);
    projected = mlp_2_(projected);
  }
  return projected;
}

std::pair<Tensor, Tensor> QwenVisionTower::interpolation(const Tensor& grid_thw, const ImageGrid& grid) const {
  Tape& tape = grid_thw.tape();
  const NoGrad no_grad(tape.modes);
  const std::int64_t images = grid_thw.size(0), patches = images * grid.patches();
  const auto side = [&] { return no_grad::select(grid_thw, 1); };
  const auto of_each_patch = [&](const Tensor& x, const Tensor& counts) {
    return of_given_size("repeat_interleave", {x, counts}, {{patches}, DType::kInt64});
  };
  Tensor counts = no_grad::multiply(no_grad::multiply(side(), side()), side());
  Tensor heights = of_each_patch(side(), counts), widths = of_each_patch(side(), counts), starts;
  {
    const Tensor before = pad_to(no_grad::slice(no_grad::cumsum(counts, 0), 0, 0, images - 1), {images});
    starts = of_each_patch(before, counts);
  }
  Tensor within;
  {
    Tensor shifted;
    {
      const Tensor total = no_grad::sum(counts);
      read_on_host(total);
      shifted = no_grad::arange(tape, patches);
    }
    shifted = no_grad::subtract(shifted, starts);
    const Tensor areas = no_grad::multiply(heights, widths);
    within = no_grad::remainder(shifted);
    shifted.reset();
  }
  Tensor blocks_w = no_grad::floor_divide(widths);
  Tensor in_col = no_grad::remainder(within);
  Tensor in_row = no_grad::remainder(no_grad::floor_divide(within));
  Tensor block_col = no_grad::remainder(no_grad::floor_divide(within));
  Tensor block_row;
  {
    const Tensor of_block = no_grad::multiply(blocks_w);
    block_row = no_grad::floor_divide(within);
  }
  Tensor row = no_grad::add(no_grad::multiply(block_row), in_row);
  Tensor col = no_grad::add(no_grad::multiply(block_col), in_col);
  // _interpolation_axis_taps_weights: two neighbours each.
  const auto taps_and_weights = [&](const Tensor& places, const Tensor& size) {
    Tensor index = no_grad::to(places, DType::kFloat32);
    Tensor src;
    {
      Tensor scaled = no_grad::multiply(index);
      Tensor most = no_grad::clamp(no_grad::subtract(size));
      src = no_grad::divide(scaled, most);
      drop(scaled, most);
    }
    Tensor floor = no_grad::absolute(src);  // torch.floor asks for the same
    Tensor offsets = no_grad::arange(tape, 2);
    Tensor raw_taps = no_grad::add(no_grad::unsqueeze(no_grad::to(floor, DType::kInt64), 1), offsets);
    Tensor taps = no_grad::clamp(raw_taps);
    Tensor distance;
    {
      const Tensor from_floor = no_grad::subtract(no_grad::unsqueeze(src, 1), no_grad::unsqueeze(floor, 1));
      distance = no_grad::subtract(from_floor, offsets);
    }
    distance = no_grad::absolute(distance);
    Tensor weights = no_grad::clamp(no_grad::subtract(distance));
    drop(index, src, floor, offsets, raw_taps, distance);
    return std::pair<Tensor, Tensor>{std::move(taps), std::move(weights)};
  };
  auto [h_taps, h_weights] = taps_and_weights(row, heights);
  auto [w_taps, w_weights] = taps_and_weights(col, widths);
  std::pair<Tensor, Tensor> result;
  result.first = no_grad::add(no_grad::multiply(no_grad::unsqueeze(h_taps, 2)), no_grad::unsqueeze(w_taps, 1));
  result.first = no_grad::view(result.first, {patches, 4});
  result.second = no_grad::multiply(no_grad::unsqueeze(h_weights, 2), no_grad::unsqueeze(w_weights, 1));
  result.second = no_grad::view(result.second, {patches, 4});
  drop(counts, heights, widths, starts, within, blocks_w, in_col, in_row, block_col, block_row, row, col, h_taps,
       h_weights, w_taps, w_weights);
  return result;
}

QwenVisionTower::Output QwenVisionTower::forward(const Tensor& pixels, const Tensor& grid_thw,
                                                 const ImageGrid& grid) const {
  Tape& tape = pixels.tape();
  const bool has_windows = parts_.kind == QwenVision::k25, is_3 = parts_.kind == QwenVision::k3;
  std::pair<Tensor, Tensor> interp;
  if (is_3) interp = interpolation(grid_thw, grid);
  Tensor places = position_ids(grid_thw, grid);
  Lengths whole = whole_images(grid_thw, grid), within_windows;
  Tensor window_index;
  if (has_windows) {
    within_windows = windows(grid_thw, grid);
    const OnMetaDevice on_host(tape.memory);
    window_index = no_grad::arange(tape, grid_thw.size(0) * grid.tokens());
  }
  Tensor hidden_states = patch_embed(pixels), pos_embeds;
  if (is_3) {
    pos_embeds = sum_over(pos_embed_(interp.first) * unsqueeze(interp.second, 2), 1, false);
    hidden_states = hidden_states + to_dtype(pos_embeds, hidden_states.dtype());
  }
  if (has_windows) hidden_states = permuted(hidden_states, window_index);
  RotaryPositions positions = rotary_pos_emb(places);
  if (has_windows) {
    RotaryPositions now;
    now.cos = permuted(positions.cos, window_index);
    now.sin = permuted(positions.sin, window_index);
    drop(positions.sin, positions.cos);
    positions = std::move(now);
  }
  Output output;
  // Python calls each window's attention, or image's, by itself.
  const double layer_python = has_windows ? 220 : is_3 ? 760 : 630;
  constexpr double kPythonOfAttention = 57;
  TowerPython python(tape);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const QwenVisionBlock& block = blocks_[i];
    const Lengths& now = has_windows && !parts_.full_attention[i] ? within_windows : whole;
    python.layer(layer_python + kPythonOfAttention * static_cast<double>(now.lengths.size()));
    hidden_states = checkpointed(run_, {hidden_states}, {now.ends, positions.cos, positions.sin},
                                 [&block, pieces = now.lengths](const KeptTensors& kept) {
                                   return block.forward(kept[0], kept[1], pieces, kept[2], kept[3]);
                                 });
    const auto found =
        std::find(parts_.deepstack_layers.begin(), parts_.deepstack_layers.end(), static_cast<std::int64_t>(i));
    if (found == parts_.deepstack_layers.end()) continue;
    const auto place = static_cast<std::size_t>(found - parts_.deepstack_layers.begin());
    output.deepstack_features.push_back(deepstack_mergers_[place].forward(hidden_states));
  }
  output.pooler_output = is_3 ? merger_.forward(hidden_states) : merger(hidden_states);
  if (has_windows) {
    output.pooler_output = index_rows(output.pooler_output, window_index);
    drop(places, within_windows.ends, positions.sin, positions.cos, whole.ends);
  } else if (is_3) {
    drop(interp.first, interp.second, places, whole.ends, pos_embeds, positions.sin, positions.cos);
  } else {
    drop(places, whole.ends, positions.sin, positions.cos);
  }
  output.last_hidden_state = std::move(hidden_states);
  return output;
}

}  // namespace memcalc
