// Mistral 3 with images: transformers models/mistral3/modeling_mistral3.py, Mistral3ForConditionalGeneration.
// MIRRORS(transformers, "models/mistral3/modeling_mistral3.py", "5.17.0")
#include <array>
#include <utility>
#include <vector>

#include "memcalc/families/llama/spec.h"
#include "memcalc/families/ministral3/pixtral_tower.h"
#include "memcalc/families/ministral3/spec.h"
#include "memcalc/models/image_text.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/fold.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/scatter.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// Mistral3MultiModalProjector
struct Mistral3Projector {
  RmsNorm norm;
  Linear merging_layer, linear_1, linear_2;
  std::string act;
  std::int64_t merge = 0;

  Mistral3Projector() = default;
  Mistral3Projector(ModuleBuilder& b, const Mistral3Parts& parts, std::int64_t hidden_size)
      : norm(b, "norm", parts.tower.hidden_size),
        merging_layer(b, "patch_merger.merging_layer",
                      parts.tower.hidden_size * parts.spatial_merge_size * parts.spatial_merge_size,
                      parts.tower.hidden_size, false),
        linear_1(b, "linear_1", parts.tower.hidden_size, hidden_size, parts.projector_bias),
        linear_2(b, "linear_2", hidden_size, hidden_size, parts.projector_bias),
        act(parts.projector_act),
        merge(parts.spatial_merge_size) {}

  /// `rows`, `columns`: patches of each image.
  [[nodiscard]] Tensor forward(const Tensor& features, const Tensor& sizes, std::int64_t rows,
                               std::int64_t columns) const {
    Tensor image_features, hidden_states;
    const Locals locals(image_features, hidden_states);
    image_features = norm(features);
    image_features = patch_merger(image_features, sizes, rows, columns);
    hidden_states = linear_1(image_features);
    hidden_states = activation_function(act, hidden_states);
    return linear_2(hidden_states);
  }

 private:
  [[nodiscard]] Tensor patch_merger(const Tensor& features, const Tensor& sizes, std::int64_t rows,
                                    std::int64_t columns) const {
    const std::int64_t images = sizes.size(0), width = features.size(-1);
    std::vector<std::array<Tensor, 2>> image_sizes;  // height, width
    std::vector<Tensor> tokens_per_image, permuted_tensor;
    for (std::int64_t i = 0; i < images; ++i) {
      Tensor rows_of_image = side_of_image(sizes), columns_of_image = side_of_image(sizes);
      image_sizes.push_back({std::move(rows_of_image), std::move(columns_of_image)});
    }
    for (const auto& [h, w] : image_sizes) tokens_per_image.push_back(no_grad::multiply(h, w));
    for (std::int64_t i = 0; i < images; ++i) read_on_host(sizes);
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(images), rows * columns);
    Tensor image_features, grid;
    std::array<Tensor, 2> last = image_sizes.back();  // h, w: the loop's variables
    for (const Tensor& image_tokens : split_with_sizes(features, 0, counts)) {
      for (int side = 0; side < 2; ++side) read_on_host(sizes);
      const Tensor image_grid = unsqueeze(permute(view(image_tokens, {rows, columns, width}), {2, 0, 1}), 0);
      grid = unfold(image_grid, {merge, merge}, {.stride = merge});
      grid = transpose(view(grid, {width * merge * merge, -1}), 0, 1);
      permuted_tensor.push_back(grid);
    }
    image_features = concatenate(permuted_tensor, 0);
    Tensor merged = merging_layer(image_features);
    image_features.reset();
    while (!image_sizes.empty()) image_sizes.pop_back();  // a Python list lets go of its last element first
    while (!tokens_per_image.empty()) tokens_per_image.pop_back();
    while (!permuted_tensor.empty()) permuted_tensor.pop_back();
    drop(last[0], last[1], grid);
    return merged;
  }
};

class Mistral3 final : public ImageParts {
 public:
  Mistral3(const ImageTextSpec& spec, const RunSpec& run)
      : ImageParts(spec, run), parts_(spec.parts.as<Mistral3Parts>()) {
    hands_on_use_cache_ = true;
  }

  void build(ModuleBuilder& b) override {
    b.scope("vision_tower", [&] {
      vision_tower_.emplace_back(b, parts_.tower, run_);
      return 0;
    });
    projector_ = b.scope("multi_modal_projector", [&] { return Mistral3Projector(b, parts_, spec_.hidden_size); });
  }

  [[nodiscard]] std::vector<ModelInput> inputs() const override {
    if (images() == 0) return inputs_with({});
    std::vector<ModelInput> inputs;
    inputs.push_back(pixel_values(parts_.tower.num_channels));
    inputs.push_back({"image_sizes", {all_images(), 2}, DType::kInt64, nullptr});
    return inputs_with(std::move(inputs));
  }

  [[nodiscard]] Tensor forward(const Batch& batch, const LookUp& look_up, const Decode& decode,
                               ModelOutput& output) const override {
    Tensor inputs_embeds = look_up(batch.input_ids);
    Tensor image_features, special_image_mask;
    if (sees_images(batch)) {
      {
        std::vector<Tensor> of_images = get_image_features(batch.pixel_values, batch.others[kImageSizes]);
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
  static constexpr std::size_t kImageSizes = 2;  // its place in the batch

  [[nodiscard]] std::vector<Tensor> get_image_features(const Tensor& pixels, const Tensor& sizes) const {
    const std::int64_t images = pixels.size(0), rows = pixels.size(2) / parts_.tower.patch_size,
                       columns = pixels.size(3) / parts_.tower.patch_size;
    std::vector<Tensor> hidden_states = vision_tower_[0].forward(pixels, sizes);
    Tensor selected_image_feature = squeeze(hidden_states.back(), 0);
    const Tensor image_features = projector_.forward(selected_image_feature, sizes, rows, columns);
    selected_image_feature.reset();
    {
      const Tensor split_sizes = no_grad::sum(no_grad::floor_divide(sizes), 1);  // torch.prod asks for the same
      read_on_host(split_sizes);
    }
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(images),
                                           rows * columns / (parts_.spatial_merge_size * parts_.spatial_merge_size));
    std::vector<Tensor> of_images = split_with_sizes(image_features, 0, counts);
    while (!hidden_states.empty()) hidden_states.pop_back();
    return of_images;
  }

  Mistral3Parts parts_;
  std::vector<PixtralTower> vision_tower_;  // one
  Mistral3Projector projector_;
};

}  // namespace

std::unique_ptr<Model> build_mistral3(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  if (architecture.is<Ministral3Spec>()) return build_ministral3(architecture, run, builder);
  const auto* const spec = architecture.get_if<ImageTextSpec>();
  if (spec == nullptr) return build_llama(architecture, run, builder);
  // MistralModel calls its layers so. (Of the text model alone the stages of a pipeline would be refused for it.)
  const auto change = [shows = spec->images.has_value()](const Architecture& /*text*/, DecoderPlan& plan) {
    plan.position_ids_first |= shows;
  };
  return build_image_text(*spec, run, builder, std::make_shared<Mistral3>(*spec, run), change);
}

}  // namespace memcalc
