// InternVL: transformers models/internvl/modeling_internvl.py, InternVLForConditionalGeneration.
// MIRRORS(transformers, "models/internvl/modeling_internvl.py", "5.17.0")
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/families/internvl/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/image_text.h"
#include "memcalc/models/tower_python.h"
#include "memcalc/models/vision.h"
#include "memcalc/symbolic/ops/scatter.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// nn.LayerNorm or InternVLVisionRMSNorm, which is LLaMA's.
using InternVlNorm = std::function<Tensor(const Tensor&)>;

InternVlNorm internvl_norm(ModuleBuilder& b, std::string_view name, std::int64_t width, bool rms) {
  if (rms) return RmsNorm(b, name, width);
  return [norm = LayerNorm(b, name, width)](const Tensor& x) { return norm(x); };
}

/// InternVLVisionAttention
struct InternVlAttention {
  Linear q_proj, k_proj, v_proj, projection_layer;
  InternVlNorm q_norm, k_norm;  // null: nn.Identity
  std::int64_t num_heads;
  double projection_dropout;
  AttentionOptions options;

  InternVlAttention(ModuleBuilder& b, const InternVlParts& parts, const RunSpec& run)
      : q_proj(b, "q_proj", parts.hidden_size, parts.hidden_size, parts.attention_bias),
        k_proj(b, "k_proj", parts.hidden_size, parts.hidden_size, parts.attention_bias),
        v_proj(b, "v_proj", parts.hidden_size, parts.hidden_size, parts.attention_bias),
        projection_layer(b, "projection_layer", parts.hidden_size, parts.hidden_size),
        num_heads(parts.num_attention_heads),
        projection_dropout(dropout_probability(run, parts.projection_dropout)),
        options{.implementation = run.attention, .dropout = dropout_probability(run, parts.attention_dropout)} {
    if (!parts.qk_norm) return;
    q_norm = internvl_norm(b, "q_norm", parts.hidden_size, true);
    k_norm = internvl_norm(b, "k_norm", parts.hidden_size, true);
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states) const {
    Tensor query_states, key_states, value_states, attn_output;
    const Locals locals(query_states, key_states, value_states, attn_output);
    query_states = q_proj(hidden_states);
    key_states = k_proj(hidden_states);
    value_states = v_proj(hidden_states);
    if (q_norm) {
      query_states = q_norm(query_states);
      key_states = k_norm(key_states);
    }
    query_states = heads(query_states);
    key_states = heads(key_states);
    value_states = heads(value_states);
    AttentionResult result = attention_interface(query_states, key_states, value_states, {}, options);
    attn_output = reshape(std::move(result.output), hidden_states.shape());
    result.output = projection_layer(attn_output);
    result.output = dropout(result.output, projection_dropout);
    return result;
  }

 private:
  [[nodiscard]] Tensor heads(const Tensor& x) const {
    return transpose(reshape(x, {x.size(0), x.size(1), num_heads, x.size(2) / num_heads}), 1, 2);
  }
};

/// InternVLVisionLayer
struct InternVlLayer {
  InternVlAttention attention;
  Linear fc1, fc2;
  InternVlNorm layernorm_before, layernorm_after;
  Tensor lambda_1, lambda_2;
  std::string hidden_act;
  double hidden_dropout;

  InternVlLayer(ModuleBuilder& b, const InternVlParts& parts, const RunSpec& run)
      : attention(b.scope("attention", [&] { return InternVlAttention(b, parts, run); })),
        fc1(b, "mlp.fc1", parts.hidden_size, parts.intermediate_size),
        fc2(b, "mlp.fc2", parts.intermediate_size, parts.hidden_size),
        layernorm_before(internvl_norm(b, "layernorm_before", parts.hidden_size, parts.rms_norm)),
        layernorm_after(internvl_norm(b, "layernorm_after", parts.hidden_size, parts.rms_norm)),
        lambda_1(b.parameter_before("lambda_1", {parts.hidden_size}, "attention.q_proj.weight")),
        lambda_2(b.parameter_before("lambda_2", {parts.hidden_size}, "attention.q_proj.weight")),
        hidden_act(parts.hidden_act),
        hidden_dropout(dropout_probability(run, parts.hidden_dropout)) {}

  [[nodiscard]] Tensor forward(const Tensor& input) const {
    Tensor hidden_states, attention_output, others, layer_output;
    const Locals locals(hidden_states, attention_output, others, layer_output);
    {
      const Tensor normed = layernorm_before(input);
      AttentionResult attended = attention.forward(normed);
      attention_output = std::move(attended.output);
      others = std::move(attended.weights);
    }
    attention_output = lambda_1 * attention_output;
    hidden_states = attention_output + input;
    layer_output = layernorm_after(hidden_states);
    layer_output = mlp(layer_output);
    layer_output = dropout(layer_output, hidden_dropout);
    layer_output = lambda_2 * layer_output;
    return layer_output + hidden_states;
  }

 private:
  [[nodiscard]] Tensor mlp(const Tensor& x) const {
    Tensor hidden_states = fc1(x);
    hidden_states = activation_function(hidden_act, hidden_states);
    hidden_states = fc2(hidden_states);
    return hidden_states;
  }
};

/// InternVLVisionModel
class InternVlTower {
 public:
  InternVlTower(ModuleBuilder& b, const InternVlParts& parts, const RunSpec& run)
      : run_(run),
        patches_require_grad_(b.first_embedding_requires_grad),
        hidden_dropout_(dropout_probability(run, parts.hidden_dropout)) {
    check_activation_function(parts.hidden_act);
    // Each of a model's towers has input embeddings of its own.
    const Scoped inputs_of_tower(b.first_embedding_requires_grad, false);
    const std::int64_t width = parts.hidden_size;
    cls_token_ = b.parameter("embeddings.cls_token", {1, 1, width});
    if (parts.mask_token) mask_token_ = b.parameter("embeddings.mask_token", {1, 1, width});
    const std::string_view projection = "embeddings.patch_embeddings.projection";
    projection_ =
        Conv2d(b, projection, parts.num_channels, width, parts.patch_size, {.stride = parts.patch_size}, true);
    if (parts.has_positions) {
      position_embeddings_ =
          b.parameter_before("embeddings.position_embeddings", {1, parts.side() * parts.side() + 1, width},
                             "embeddings.patch_embeddings.projection.weight");
    }
    for (std::int64_t i = 0; i < parts.num_hidden_layers; ++i) {
      layers_.push_back(b.scope("encoder.layer." + std::to_string(i), [&] { return InternVlLayer(b, parts, run); }));
    }
    if (parts.last_norm) layernorm_ = internvl_norm(b, "layernorm", width, false);
  }

  [[nodiscard]] DType dtype() const { return cls_token_.dtype(); }

  /// last_hidden_state
  [[nodiscard]] Tensor forward(const Tensor& pixel_values) const {
    Tensor embedding_output = embeddings(pixel_values), hidden_states = embedding_output;
    TowerPython python(pixel_values.tape());
    for (const InternVlLayer& layer : layers_) {
      python.layer(1600);
      hidden_states =
          checkpointed(run_, {hidden_states}, {}, [&layer](const KeptTensors& kept) { return layer.forward(kept[0]); });
    }
    if (layernorm_) hidden_states = layernorm_(hidden_states);
    embedding_output.reset();
    return hidden_states;
  }

 private:
  [[nodiscard]] Tensor embeddings(const Tensor& pixel_values) const {
    const std::int64_t images = pixel_values.size(0);
    Tensor embeddings = projection_(pixel_values);
    embeddings = transpose(view(embeddings, {images, embeddings.size(1), -1}), 1, 2);
    Tape& tape = embeddings.tape();
    if (patches_require_grad_ && tape.modes.grad_enabled && !embeddings.requires_grad()) {
      tape.autograd.require_gradient(embeddings);
    }
    const Tensor cls_tokens = expand(cls_token_, {images, -1, -1});
    embeddings = cat(cls_tokens, embeddings, 1);
    if (position_embeddings_.defined()) embeddings = embeddings + position_embeddings_;
    return dropout(embeddings, hidden_dropout_);
  }

  RunSpec run_;
  bool patches_require_grad_;  // enable_input_require_grads: the tower's input embeddings
  double hidden_dropout_;
  Tensor cls_token_, mask_token_, position_embeddings_;
  Conv2d projection_;
  std::vector<InternVlLayer> layers_;
  InternVlNorm layernorm_;  // null: nn.Identity
};

/// InternVLMultiModalProjector
struct InternVlProjector {
  LayerNorm layer_norm;
  Linear linear_1, linear_2;
  std::string act;

  InternVlProjector() = default;
  InternVlProjector(ModuleBuilder& b, const InternVlParts& parts, std::int64_t hidden_size)
      : layer_norm(b, "layer_norm", parts.merged_width()),
        linear_1(b, "linear_1", parts.merged_width(), hidden_size),
        linear_2(b, "linear_2", hidden_size, hidden_size),
        act(parts.projector_act) {}

  [[nodiscard]] Tensor forward(const Tensor& image_features) const {
    Tensor hidden_states = layer_norm(image_features);
    hidden_states = linear_1(hidden_states);
    hidden_states = activation_function(act, hidden_states);
    hidden_states = linear_2(hidden_states);
    return hidden_states;
  }
};

class InternVl final : public ImageParts {
 public:
  InternVl(const ImageTextSpec& spec, const RunSpec& run)
      : ImageParts(spec, run), parts_(spec.parts.as<InternVlParts>()) {}

  void build(ModuleBuilder& b) override {
    b.scope("vision_tower", [&] {
      vision_tower_.emplace_back(b, parts_, run_);
      return 0;
    });
    projector_ = b.scope("multi_modal_projector", [&] { return InternVlProjector(b, parts_, spec_.hidden_size); });
  }

  [[nodiscard]] std::vector<ModelInput> inputs() const override {
    if (images() == 0) return inputs_with({});
    return inputs_with({pixel_values(parts_.num_channels)});
  }

  [[nodiscard]] Tensor forward(const Batch& batch, const LookUp& look_up, const Decode& decode,
                               ModelOutput& output) const override {
    Tensor inputs_embeds = look_up(batch.input_ids);
    Tensor image_features, special_image_mask;
    if (sees_images(batch)) {
      {
        const Tensor pooler_output = get_image_features(batch.pixel_values);
        image_features = to_dtype(pooler_output, inputs_embeds.dtype());
      }
      special_image_mask = placeholder_mask(batch.input_ids);
      inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, image_features);
    }
    Tensor hidden_states = decode({.inputs_embeds = inputs_embeds});
    drop(inputs_embeds, special_image_mask);
    if (image_features.defined()) output.others.push_back(std::move(image_features));
    return hidden_states;
  }

 private:
  [[nodiscard]] Tensor get_image_features(const Tensor& pixels) const {
    Tensor pixel_values = to_dtype(pixels, vision_tower_[0].dtype());
    Tensor last_hidden_state = vision_tower_[0].forward(pixel_values);
    const std::int64_t images = pixels.size(0), side = parts_.side(), tokens = last_hidden_state.size(1);
    Tensor vision_features = slice(last_hidden_state, 1, 1, tokens - 1);
    vision_features = reshape(vision_features, {images, side, side, -1});
    vision_features = pixel_shuffle(vision_features);
    vision_features = reshape(vision_features, {images, -1, parts_.merged_width()});
    vision_features = projector_.forward(vision_features);
    drop(pixel_values, last_hidden_state);
    return vision_features;
  }

  [[nodiscard]] Tensor pixel_shuffle(const Tensor& x) const {
    const std::int64_t images = x.size(0), side = parts_.side(), merge = parts_.merge, width = parts_.hidden_size;
    Tensor vision_features = view(x, {images, side, side / merge, width * merge});
    vision_features = contiguous(permute(vision_features, {0, 2, 1, 3}));
    vision_features = view(vision_features, {images, side / merge, side / merge, width * merge * merge});
    vision_features = contiguous(permute(vision_features, {0, 2, 1, 3}));
    return vision_features;
  }

  InternVlParts parts_;
  std::vector<InternVlTower> vision_tower_;  // one
  InternVlProjector projector_;
};

}  // namespace

std::unique_ptr<Model> build_internvl(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<ImageTextSpec>();
  return build_image_text(spec, run, builder, std::make_shared<InternVl>(spec, run));
}

}  // namespace memcalc
