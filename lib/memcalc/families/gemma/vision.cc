// Gemma 3 and PaliGemma with images: transformers models/gemma3/modeling_gemma3.py, Gemma3ForConditionalGeneration;
// models/paligemma/modeling_paligemma.py, PaliGemmaForConditionalGeneration.
// MIRRORS(transformers, "models/paligemma/modeling_paligemma.py", "5.17.0")
#include <utility>
#include <vector>

#include "memcalc/families/clip/tower.h"
#include "memcalc/families/gemma/spec.h"
#include "memcalc/models/block_masks.h"
#include "memcalc/models/centered_rms_norm.h"
#include "memcalc/models/image_text.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/pool.h"
#include "memcalc/symbolic/ops/scatter.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// What both are given beside the text: pixels, and which tokens are an image's.
std::vector<ModelInput> inputs_of_images(ModelInput pixels, const RunSpec& run) {
  std::vector<ModelInput> inputs;
  inputs.push_back(std::move(pixels));
  inputs.push_back({"token_type_ids", {run.batch_size, run.sequence_length}, DType::kInt64, nullptr});
  return inputs;
}
constexpr std::size_t kTokenTypes = 2;  // its place in the batch

/// Gemma3MultiModalProjector
struct Gemma3Projector {
  Tensor mm_input_projection_weight;
  CenteredRmsNorm mm_soft_emb_norm;
  std::int64_t patches_per_image = 0, kernel_size = 0;

  Gemma3Projector() = default;
  Gemma3Projector(ModuleBuilder& b, const Gemma3VisionParts& parts, std::int64_t hidden_size)
      : mm_input_projection_weight(
            b.parameter("mm_input_projection_weight", {parts.tower.tower.hidden_size, hidden_size})),
        mm_soft_emb_norm(b, "mm_soft_emb_norm", parts.tower.tower.hidden_size),
        patches_per_image(parts.patches_per_side()),
        kernel_size(parts.patches_per_side() / parts.tokens_per_side()) {}

  [[nodiscard]] Tensor forward(const Tensor& vision_outputs) const {
    const std::int64_t batch = vision_outputs.size(0), width = vision_outputs.size(2);
    Tensor reshaped = transpose(vision_outputs, 1, 2);
    reshaped = reshape(reshaped, {batch, width, patches_per_image, patches_per_image});
    reshaped = contiguous(reshaped);
    Tensor pooled = avg_pool2d(reshaped, kernel_size);
    pooled = reshape(pooled, {batch, width, -1});
    pooled = transpose(pooled, 1, 2);
    Tensor normed = mm_soft_emb_norm(pooled);
    Tensor projected = matmul(normed, mm_input_projection_weight);
    Tensor result = to_dtype(projected, vision_outputs.dtype());
    drop(reshaped, pooled, normed, projected);
    return result;
  }
};

/// get_block_sequence_ids_for_mask: which image a token is of, -1 for text.
Tensor block_sequence_ids_of(const Tensor& token_type_ids) {
  const NoGrad no_grad(token_type_ids.tape().modes);
  const std::int64_t batch = token_type_ids.size(0), tokens = token_type_ids.size(1);
  Tensor is_image = no_grad::equal(token_type_ids);
  Tensor is_previous_image = slice(pad_to(is_image, {batch, tokens + 1}), 1, 0, tokens);
  Tensor new_image_start = no_grad::bitwise_and(is_image, no_grad::bitwise_not(is_previous_image));
  Tensor group_ids = no_grad::subtract(no_grad::cumsum(no_grad::to(new_image_start, DType::kInt32), 1));
  Tensor result = where(is_image, group_ids);
  drop(is_image, is_previous_image, new_image_start, group_ids);
  return result;
}

class Gemma3Vision final : public ImageParts {
 public:
  Gemma3Vision(const ImageTextSpec& spec, const RunSpec& run)
      : ImageParts(spec, run), parts_(spec.parts.as<Gemma3VisionParts>()) {
    growing_types_ = {.place = kTokenTypes, .repeats_last = true, .handed_on = false};
  }

  void build(ModuleBuilder& b) override {
    b.scope("vision_tower", [&] {
      vision_tower_.emplace_back(b, run_, parts_.tower);
      return 0;
    });
    projector_ = b.scope("multi_modal_projector", [&] { return Gemma3Projector(b, parts_, spec_.hidden_size); });
  }

  [[nodiscard]] std::vector<ModelInput> inputs() const override {
    if (images() == 0) return inputs_with({});
    return inputs_with(inputs_of_images(pixel_values(parts_.tower.num_channels), run_));
  }

  [[nodiscard]] Tensor forward(const Batch& batch, const LookUp& look_up, const Decode& decode,
                               ModelOutput& output) const override {
    Tensor inputs_embeds = look_up(batch.input_ids);
    if (!sees_images(batch)) {
      Tensor hidden_states = decode({.inputs_embeds = inputs_embeds});
      inputs_embeds.reset();
      return hidden_states;
    }
    Tensor image_features;
    {
      PooledStates vision_outputs = vision_tower_[0].forward(run_, batch.pixel_values);
      Tensor pooled = projector_.forward(vision_outputs.last_hidden_state);
      vision_outputs.last_hidden_state.reset();
      image_features = to_dtype(pooled, inputs_embeds.dtype());
    }
    Tensor special_image_mask = placeholder_mask(batch.input_ids);
    inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, image_features);
    Tensor block_sequence_ids = block_sequence_ids_of(batch.others[kTokenTypes]);
    std::array<Tensor, 2> masks;
    masks[0] = create_block_mask(run_, inputs_embeds, batch, block_sequence_ids, {});
    if (batch.attention_mask.defined()) no_grad::to(batch.attention_mask, DType::kBool).reset();  // looked at once more
    masks[1] = create_block_mask(run_, inputs_embeds, batch, block_sequence_ids, {}, BlockWindow::kOfAll);
    Tensor hidden_states = decode({.inputs_embeds = inputs_embeds, .masks = masks});
    drop(special_image_mask, masks[0], masks[1], inputs_embeds, block_sequence_ids);
    output.others.push_back(std::move(image_features));
    return hidden_states;
  }

 private:
  Gemma3VisionParts parts_;
  std::vector<ClipVisionModel> vision_tower_;  // one
  Gemma3Projector projector_;
};

class PaliGemma final : public ImageParts {
 public:
  PaliGemma(const ImageTextSpec& spec, const RunSpec& run)
      : ImageParts(spec, run), parts_(spec.parts.as<PaliGemmaParts>()) {
    growing_types_ = {.place = kTokenTypes, .repeats_last = true};
    counts_from_one_ = true;
  }

  void build(ModuleBuilder& b) override {
    b.scope("vision_tower", [&] {
      vision_tower_.emplace_back(b, run_, parts_.tower);
      return 0;
    });
    projector_ = Linear(b, "multi_modal_projector.linear", parts_.tower.tower.hidden_size, parts_.projection_dim);
  }

  [[nodiscard]] std::vector<ModelInput> inputs() const override {
    if (images() == 0) return inputs_with({});
    return inputs_with(inputs_of_images(pixel_values(parts_.tower.num_channels), run_));
  }

  [[nodiscard]] Tensor forward(const Batch& batch, const LookUp& look_up, const Decode& decode,
                               ModelOutput& output) const override {
    Tape& tape = batch.input_ids.tape();
    Tensor inputs_embeds = look_up(batch.input_ids);
    Tensor position_ids = batch.position_ids;
    if (!position_ids.defined()) {
      position_ids = no_grad::add(no_grad::arange(tape, inputs_embeds.size(1)));
      position_ids = no_grad::add(no_grad::unsqueeze(position_ids, 0));  // counted from 1
    }
    Tensor image_features, special_image_mask, block_sequence_ids;
    if (sees_images(batch)) {
      PooledStates image_outputs = vision_tower_[0].forward(run_, batch.pixel_values);
      Tensor projected = projector_(image_outputs.last_hidden_state);
      image_outputs.last_hidden_state.reset();
      image_features = to_dtype(projected, inputs_embeds.dtype());
      projected.reset();
      special_image_mask = placeholder_mask(batch.input_ids);
      inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, image_features);
      block_sequence_ids = block_of_prefix(batch.others[kTokenTypes]);
    }
    std::array<Tensor, 2> masks;
    masks[0] = mask_of(inputs_embeds, batch, block_sequence_ids, position_ids, std::nullopt);
    if (spec_.sliding_window) {
      masks[1] = mask_of(inputs_embeds, batch, block_sequence_ids, position_ids, spec_.sliding_window);
    }
    Tensor hidden_states = decode({.inputs_embeds = inputs_embeds, .position_ids = position_ids, .masks = masks});
    special_image_mask.reset();
    if (spec_.sliding_window) drop(masks[0], masks[1]);  // a dict of them
    drop(inputs_embeds, position_ids, block_sequence_ids, masks[0]);
    if (image_features.defined()) output.others.push_back(std::move(image_features));
    return hidden_states;
  }

 private:
  /// torch.where(token_type_ids == 0, 0, -1): two numbers, each a scalar on the card for the call.
  static Tensor block_of_prefix(const Tensor& token_type_ids) {
    Tape& tape = token_type_ids.tape();
    const Tensor is_prefix = no_grad::equal(token_type_ids);
    const Tensor block = no_grad::scalar(tape, DType::kInt64), none = no_grad::scalar(tape, DType::kInt64);
    return no_grad::where(is_prefix, block, none);
  }

  [[nodiscard]] Tensor mask_of(const Tensor& inputs_embeds, const Batch& batch, const Tensor& blocks,
                               const Tensor& position_ids, std::optional<std::int64_t> window) const {
    if (blocks.defined()) {
      return create_block_mask(run_, inputs_embeds, batch, blocks, position_ids,
                               window ? BlockWindow::kOfCausal : BlockWindow::kNone);
    }
    const auto* const cache = batch.past_key_values;
    return create_causal_mask(run_, inputs_embeds, batch,
                              cache == nullptr ? PastTokens(false) : PastTokens(&cache->self_attention), window);
  }

  PaliGemmaParts parts_;
  std::vector<ClipVisionModel> vision_tower_;  // one
  Linear projector_;
};

}  // namespace

std::unique_ptr<Model> build_gemma3_vision(const Architecture& architecture, const RunSpec& run,
                                           ModuleBuilder& builder) {
  const auto* const spec = architecture.get_if<ImageTextSpec>();
  if (spec == nullptr) return build_gemma3(architecture, run, builder);
  return build_image_text(*spec, run, builder, std::make_shared<Gemma3Vision>(*spec, run));
}

std::unique_ptr<Model> build_paligemma(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<ImageTextSpec>();
  return build_image_text(spec, run, builder, std::make_shared<PaliGemma>(spec, run));
}

}  // namespace memcalc
