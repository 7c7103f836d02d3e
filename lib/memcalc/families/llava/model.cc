// LLaVA: transformers models/llava/modeling_llava.py, LlavaForConditionalGeneration.
// MIRRORS(transformers, "models/llava/modeling_llava.py", "5.17.0")
#include <algorithm>
#include <utility>
#include <vector>

#include "memcalc/families/clip/tower.h"
#include "memcalc/families/llava/spec.h"
#include "memcalc/models/image_text.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/scatter.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// LlavaMultiModalProjector
struct Projector {
  Linear linear_1, linear_2;
  std::string act;

  Projector() = default;
  Projector(ModuleBuilder& b, const LlavaParts& parts, std::int64_t hidden_size)
      : linear_1(b, "linear_1", parts.tower.tower.hidden_size * static_cast<std::int64_t>(parts.feature_layers.size()),
                 hidden_size, parts.projector_bias),
        linear_2(b, "linear_2", hidden_size, hidden_size, parts.projector_bias),
        act(parts.projector_act) {}

  [[nodiscard]] Tensor forward(const Tensor& image_features) const {
    Tensor hidden_states = linear_1(image_features);
    hidden_states = activation_function(act, hidden_states);
    hidden_states = linear_2(hidden_states);
    return hidden_states;
  }
};

class Llava final : public ImageParts {
 public:
  Llava(const ImageTextSpec& spec, const RunSpec& run) : ImageParts(spec, run), parts_(spec.parts.as<LlavaParts>()) {}

  void build(ModuleBuilder& b) override {
    b.scope("vision_tower", [&] {
      vision_tower_.emplace_back(b, run_, parts_.tower);
      return 0;
    });
    projector_ = b.scope("multi_modal_projector", [&] { return Projector(b, parts_, spec_.hidden_size); });
  }

  [[nodiscard]] std::vector<ModelInput> inputs() const override {
    if (images() == 0) return inputs_with({});
    return inputs_with({pixel_values(parts_.tower.num_channels)});
  }

  [[nodiscard]] Tensor forward(const Batch& batch, const LookUp& look_up, const Decode& decode,
                               ModelOutput& output) const override {
    Tensor inputs_embeds = look_up(batch.input_ids);
    Tensor image_features, special_image_mask;
    if (sees_images(batch)) {
      {
        const std::vector<Tensor> of_images = unbind(get_image_features(batch.pixel_values), 0);
        const Tensor joined = concatenate(of_images, 0);
        image_features = to_dtype(joined, inputs_embeds.dtype());
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
    PooledStates image_outputs = vision_tower_[0].forward(run_, pixels, true);
    Tensor selected_image_feature;
    std::vector<Tensor> hs_pool;
    for (const std::int64_t layer : parts_.feature_layers) {
      Tensor states = image_outputs.hidden_states[static_cast<std::size_t>(layer)];
      if (parts_.drops_class_token) states = slice(states, 1, 1, states.size(1) - 1);
      hs_pool.push_back(std::move(states));
    }
    selected_image_feature = parts_.single_layer ? std::move(hs_pool[0]) : concatenate(hs_pool, -1);
    Tensor image_features = projector_.forward(selected_image_feature);
    drop(image_outputs.pooler_output, selected_image_feature, image_outputs.last_hidden_state);
    for (auto each = image_outputs.hidden_states.rbegin(); each != image_outputs.hidden_states.rend(); ++each) {
      each->reset();
    }
    return image_features;
  }

  LlavaParts parts_;
  std::vector<ClipVisionModel> vision_tower_;  // one
  Projector projector_;
};

}  // namespace

std::unique_ptr<Model> build_llava(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<ImageTextSpec>();
  return build_image_text(spec, run, builder, std::make_shared<Llava>(spec, run));
}

}  // namespace memcalc
