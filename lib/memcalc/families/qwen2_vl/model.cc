// Qwen2-VL, Qwen2.5-VL and Qwen3-VL: transformers models/qwen2_vl/modeling_qwen2_vl.py,
// models/qwen2_5_vl/modeling_qwen2_5_vl.py, models/qwen3_vl/modeling_qwen3_vl.py, and with experts
// models/qwen3_vl_moe/modeling_qwen3_vl_moe.py.
// MIRRORS(transformers, "models/qwen2_5_vl/modeling_qwen2_5_vl.py", "5.17.0")
// MIRRORS(transformers, "models/qwen2_vl/modeling_qwen2_vl.py", "5.17.0")
// MIRRORS(transformers, "models/qwen3_vl/modeling_qwen3_vl.py", "5.17.0")
// MIRRORS(transformers, "models/qwen3_vl_moe/modeling_qwen3_vl_moe.py", "5.17.0")
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/families/qwen/spec.h"
#include "memcalc/families/qwen2_vl/spec.h"
#include "memcalc/families/qwen2_vl/tower.h"
#include "memcalc/families/qwen3_moe/spec.h"
#include "memcalc/models/image_text.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/autocast.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/scatter.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// recomposition_frequencies: sections of time, height and width follow each other.
Tensor in_sections(const Tensor& freq) {
  const std::int64_t count = freq.size(3);
  std::vector<Tensor> parts = split(freq, 3, {count / 4, count / 2 - count / 4, count - count / 2});
  for (Tensor& part : parts) part = select(part, 0);
  const Tensor joined = cat3(parts[0], parts[1], parts[2], 2);
  return cat(joined, joined, 2);
}

/// Those of Qwen3-VL take turns: height and width are written over some numbers of time, in place.
Tensor interleaved(const Tensor& freq) {
  const Tensor freqs_thw = select(freq, 0);
  return cat(freqs_thw, freqs_thw, 2);
}

/// Qwen2VLRotaryEmbedding.forward, Qwen3VLTextRotaryEmbedding.forward: [batch, tokens, head_dim] out of three positions
/// a token.
template <bool kInterleaved>
RotaryPositions multimodal_positions(const RotaryEmbedding& rotary, const Tensor& x, const Tensor& position_ids,
                                     std::optional<DType> dtype) {
  Tape& tape = x.tape();
  const NoGrad no_grad(tape.modes);
  const bool of_text = position_ids.rank() == 2;  // position_ids.view(1, 1, -1).expand(3, batch, -1)
  Tensor three = of_text ? expand(unsqueeze(position_ids, 0), {3, x.size(0), -1}) : position_ids;
  if (three.size(0) == 4) three = slice(three, 0, 1, 3);  // generate()'s, of which the first are the text's
  const std::int64_t count = rotary.inverse_frequencies.size(0), batch = three.size(1);
  Tensor inv_freq_expanded = expand(view(rotary.inverse_frequencies, {1, 1, count, 1}), {3, batch, count, 1});
  Tensor position_ids_expanded = to_dtype(unsqueeze(three, 2), DType::kFloat32);
  Tensor freqs;
  RotaryPositions result;
  {
    const WithoutAutocast without_autocast(tape.modes.autocast);
    freqs = transpose(matmul(inv_freq_expanded, position_ids_expanded), 2, 3);
    result.cos = multiply_scalar(cosine(freqs));
    result.sin = multiply_scalar(sine(freqs));
  }
  const auto recomposed = [&](const Tensor& freq) { return kInterleaved ? interleaved(freq) : in_sections(freq); };
  result.sin = recomposed(result.sin);
  result.cos = recomposed(result.cos);
  Tensor cos = to_dtype(result.cos, dtype.value_or(x.dtype()));
  Tensor sin = to_dtype(result.sin, dtype.value_or(x.dtype()));
  drop(inv_freq_expanded, position_ids_expanded, freqs, result.cos, result.sin);
  result.cos = std::move(cos);
  result.sin = std::move(sin);
  return result;
}

/// Qwen2VLAttention, Qwen2_5_VLAttention: Qwen2's, whose three products come before their views.
struct Qwen2VlAttention : HeadProjections {
  Qwen2VlAttention(ModuleBuilder& b, const Qwen2Spec& spec, const RunSpec& run, bool sliding)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), sliding, /*qkv_bias=*/true,
                        /*output_bias=*/false) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    const std::int64_t batch = hidden_states.size(0), tokens = hidden_states.size(1);
    Tensor query_states = q_proj(hidden_states);
    Tensor key_states = k_proj(hidden_states);
    Tensor value_states = v_proj(hidden_states);
    for (Tensor* states : {&query_states, &key_states, &value_states}) {
      *states = transpose(view(*states, {batch, tokens, -1, head_dim}), 1, 2);
    }
    rotate_heads(query_states, key_states, positions);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

using Qwen2VlLayer = PreNormLayer<Qwen2Spec, Qwen2VlAttention, RmsNorm>;

class Qwen2Vl final : public ImageParts {
 public:
  Qwen2Vl(const ImageTextSpec& spec, const RunSpec& run)
      : ImageParts(spec, run), parts_(spec.parts.as<QwenVisionParts>()) {
    // Qwen2VLForConditionalGeneration does not say accepts_loss_kwargs = False, only the Qwen2VLModel in it does.
    accepts_loss_kwargs_ = parts_.kind == QwenVision::k2;
    growing_types_.place = kTokenTypes;
    const ImageSize size = image();
    grid_ = {size.height / parts_.patch_size, size.width / parts_.patch_size, parts_.spatial_merge_size};
  }

  void build(ModuleBuilder& b) override {
    b.scope("visual", [&] {
      visual_.emplace_back(b, parts_, run_);
      return 0;
    });
  }

  [[nodiscard]] std::vector<ModelInput> inputs() const override {
    if (images() == 0) return inputs_with({});
    const std::int64_t patch = parts_.in_channels * parts_.temporal_patch_size * parts_.patch_size * parts_.patch_size;
    return inputs_with(
        {{"pixel_values", {all_images() * grid_.patches(), patch}, type_of_pixels(), &Batch::pixel_values},
         {"image_grid_thw", {all_images(), 3}, DType::kInt64, nullptr},
         {"mm_token_type_ids", {run_.batch_size, run_.sequence_length}, DType::kInt64, nullptr}});
  }

  [[nodiscard]] Tensor forward(const Batch& batch, const LookUp& look_up, const Decode& decode,
                               ModelOutput& output) const override {
    const bool is_3 = parts_.kind == QwenVision::k3;
    Tensor inputs_embeds = look_up(batch.input_ids);
    if (!sees_images(batch)) {
      if (rope_deltas_.defined()) output.others.push_back(rope_deltas_);
      Tensor hidden_states = decode({.inputs_embeds = inputs_embeds, .holds_layer_outputs = is_3});
      inputs_embeds.reset();
      return hidden_states;
    }
    const Tensor& image_grid_thw = batch.others[kGrids];
    QwenVisionTower::Output image_outputs;
    Tensor image_embeds, image_mask, video_mask;
    std::vector<Tensor> of_images = get_image_features(batch.pixel_values, image_grid_thw, image_outputs);
    if (!is_3) image_outputs.last_hidden_state.reset();
    {
      const Tensor joined = concatenate(of_images, 0);
      image_embeds = to_dtype(joined, inputs_embeds.dtype());
    }
    if (!is_3) of_images.clear();
    get_placeholder_masks(batch.input_ids, image_mask, video_mask);
    inputs_embeds = masked_scatter(inputs_embeds, image_mask, image_embeds);
    if (is_3) image_mask = no_grad::select(image_mask, 2);
    Tensor position_ids = batch.position_ids.defined() ? batch.position_ids : get_rope_index(batch, image_grid_thw);
    output.others.push_back(rope_deltas_);
    Tensor hidden_states = decode({.inputs_embeds = inputs_embeds,
                                   .position_ids = position_ids,
                                   .features_of_layers = image_outputs.deepstack_features,
                                   .image_places = is_3 ? image_mask : Tensor(),
                                   .holds_layer_outputs = is_3});
    drop(position_ids, inputs_embeds, image_outputs.last_hidden_state);
    of_images.clear();
    if (is_3) {
      drop(image_embeds, video_mask, image_mask);
    } else {
      drop(image_embeds, image_mask, video_mask);
    }
    while (!image_outputs.deepstack_features.empty()) image_outputs.deepstack_features.pop_back();
    return hidden_states;
  }

  /// [4, batch, tokens]: the text's positions, then those of time, height and width.
  [[nodiscard]] Tensor positions_for_generation(const Batch& batch, const Tensor& text_positions) const override {
    Tensor vision_positions;
    if (images() > 0) {
      vision_positions = get_rope_index(batch, batch.others[kGrids]);
    } else {
      vision_positions = no_grad::expand(no_grad::unsqueeze(text_positions, 0), {3, -1, -1});
      rope_deltas_ = no_grad::zeros(text_positions.tape(), {text_positions.size(0), 1}, DType::kInt64);
    }
    return no_grad::cat(no_grad::unsqueeze(text_positions, 0), vision_positions, 0);
  }

 private:
  static constexpr std::size_t kGrids = 2, kTokenTypes = 3;  // their places in the batch

  /// The images' tokens, as views of one tensor.
  [[nodiscard]] std::vector<Tensor> get_image_features(const Tensor& pixels, const Tensor& image_grid_thw,
                                                       QwenVisionTower::Output& outputs) const {
    Tensor pixel_values = to_dtype(pixels, visual_[0].dtype());
    outputs = visual_[0].forward(pixel_values, image_grid_thw, grid_);
    {
      const Tensor sizes = no_grad::floor_divide(reduced(aten::kProd, image_grid_thw, 0b10, false, DType::kInt64));
      read_on_host(sizes);
    }
    const std::vector<std::int64_t> sizes(static_cast<std::size_t>(all_images()), grid_.tokens());
    std::vector<Tensor> image_embeds = split_with_sizes(outputs.pooler_output, 0, sizes);
    drop(outputs.pooler_output, pixel_values);
    return image_embeds;
  }

  static void get_placeholder_masks(const Tensor& input_ids, Tensor& image_mask, Tensor& video_mask) {
    Tensor special_image_mask = no_grad::equal(input_ids);
    Tensor special_video_mask = no_grad::equal(input_ids);
    Tensor n_image_tokens = no_grad::sum(special_image_mask);
    special_image_mask = no_grad::unsqueeze(special_image_mask, -1);
    check_places(n_image_tokens);
    Tensor n_video_tokens = no_grad::sum(special_video_mask);
    special_video_mask = no_grad::unsqueeze(special_video_mask, -1);
    drop(n_image_tokens, n_video_tokens);
    image_mask = std::move(special_image_mask);
    video_mask = std::move(special_video_mask);
  }

  /// get_vision_position_ids of the language model: [3, tokens of an image]
  [[nodiscard]] Tensor image_position_ids(const Tensor& grid_thw, const Tensor& start_position) const {
    Tape& tape = grid_thw.tape();
    for (int i = 0; i < 3; ++i) read_on_host(grid_thw);
    const std::int64_t rows = grid_.height / grid_.merge, columns = grid_.width / grid_.merge;
    const auto from_start = [&](std::int64_t count) {
      Tensor range = no_grad::arange(tape, count);
      if (start_position.defined()) return no_grad::add(std::move(range), start_position);
      return no_grad::add(std::move(range));
    };
    Tensor position_temporal = no_grad::multiply(no_grad::arange(tape, 1));
    Tensor position_height = from_start(rows);
    Tensor position_width = from_start(columns);
    Tensor result;
    {
      const Shape grid{1, rows, columns};
      std::vector<Tensor> grids;
      grids.push_back(no_grad::expand(no_grad::view(position_temporal, {1, 1, 1}), grid));
      grids.push_back(no_grad::expand(no_grad::view(position_height, {1, rows, 1}), grid));
      grids.push_back(no_grad::expand(no_grad::view(position_width, {1, 1, columns}), grid));
      for (Tensor& each : grids) each = no_grad::unsqueeze(each, 0);
      result = no_grad::view(concatenate(grids, 0), {3, rows * columns});
    }
    drop(position_temporal, position_height, position_width);
    return result;
  }

  /// get_rope_index: [3, batch, tokens]. The module holds rope_deltas until it makes them anew.
  [[nodiscard]] Tensor get_rope_index(const Batch& batch, const Tensor& image_grid_thw) const {
    const Tensor &input_ids = batch.input_ids, &mm_token_type_ids = batch.others[kTokenTypes];
    Tape& tape = input_ids.tape();
    const std::int64_t rows = input_ids.size(0), tokens = input_ids.size(1);
    Tensor position_ids = no_grad::zeros(tape, {3, rows, tokens}, DType::kInt64);
    std::vector<Tensor> mrope_position_deltas, llm_pos_ids_list;
    Tensor current_input_ids, input_token_type, current_pos, vision_position_ids, llm_positions;
    for (std::int64_t row = 0; row < rows; ++row) {
      const bool is_padded = batch.attention_mask.defined() && batch.padded && row == 0;
      const std::int64_t valid = tokens - (is_padded ? 1 : 0);
      current_input_ids = no_grad::select(input_ids, 0);
      input_token_type = no_grad::select(mm_token_type_ids, 0);
      if (batch.attention_mask.defined()) {
        const auto those_that_count = [&](const Tensor& x) {
          const Tensor mask = no_grad::to(no_grad::select(batch.attention_mask, 0), DType::kBool);
          return index_by_mask(x, 0, mask, valid);
        };
        current_input_ids = those_that_count(current_input_ids);
        input_token_type = those_that_count(input_token_type);
      }
      read_on_host(input_token_type);
      current_pos.reset();
      while (!llm_pos_ids_list.empty()) llm_pos_ids_list.pop_back();
      const auto add_text = [&](std::int64_t length) {
        Tensor ids = no_grad::expand(no_grad::view(no_grad::arange(tape, length), {1, length}), {3, length});
        llm_pos_ids_list.push_back(current_pos.defined() ? no_grad::add(std::move(ids), current_pos)
                                                         : no_grad::add(std::move(ids)));
      };
      for (std::int64_t i = 0; i < images(); ++i) {  // a token stands before each
        add_text(1);
        vision_position_ids = image_position_ids(image_grid_thw, current_pos);
        llm_pos_ids_list.push_back(vision_position_ids);
        no_grad::greater(no_grad::select(no_grad::select(image_grid_thw, 0), 0),
                         no_grad::select(no_grad::select(image_grid_thw, 0), 0))
            .reset();
        read_on_host(image_grid_thw);
        Tensor side = no_grad::floor_divide(no_grad::select(no_grad::select(image_grid_thw, 0), 0));
        if (!current_pos.defined()) current_pos = no_grad::add(std::move(side));  // else in place
      }
      add_text(valid - images() * (grid_.tokens() + 1));
      llm_positions = no_grad::view(concatenate(llm_pos_ids_list, 1), {3, valid});
      if (batch.attention_mask.defined()) {
        const Tensor mask = no_grad::to(no_grad::select(batch.attention_mask, 0), DType::kBool);
        const Tensor places = nonzero(mask, valid);
        index_put_in_place(position_ids, llm_positions);
      }
      mrope_position_deltas.push_back(no_grad::subtract(no_grad::add(no_grad::max(llm_positions))));
    }
    Tensor rope_deltas = no_grad::unsqueeze(no_grad::from_list(tape, {rows}), 1);
    while (!mrope_position_deltas.empty()) mrope_position_deltas.pop_back();
    drop(current_input_ids, input_token_type, current_pos);
    while (!llm_pos_ids_list.empty()) llm_pos_ids_list.pop_back();
    drop(vision_position_ids, llm_positions);
    rope_deltas_ = std::move(rope_deltas);
    return position_ids;
  }

  QwenVisionParts parts_;
  ImageGrid grid_;
  std::vector<QwenVisionTower> visual_;  // one
  mutable Tensor rope_deltas_;           // as the module's attribute
};

}  // namespace

std::unique_ptr<Model> build_qwen2_vl(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<ImageTextSpec>();
  const bool is_3 = spec.parts.as<QwenVisionParts>().kind == QwenVision::k3;
  const ChangePlan change = [&](const Architecture& text, DecoderPlan& plan) {
    plan.rotate = is_3 ? multimodal_positions<true> : multimodal_positions<false>;
    plan.masks.mapping_has_positions = false;
    plan.layers_take_position_ids = false;
    plan.has_classifier = false;
    if (text.is<Qwen3MoeSpec>())
      plan.masks.mapping = true;  // Qwen3VLMoeTextModel is Qwen3VLTextModel but for its layers
    if (!is_3) plan.layer = decoder_plan<Qwen2VlLayer>(text.as<Qwen2Spec>(), run).layer;
  };
  return build_image_text(spec, run, builder, std::make_shared<Qwen2Vl>(spec, run), change);
}

}  // namespace memcalc
