// ConvNeXt: torchvision models/convnext.py. Behind the stem every image went through permute, so its strides are
// channels-last and cuDNN computes in that layout.
// MIRRORS(torchvision, "models/convnext.py", "0.26.0")
#include <algorithm>
#include <array>

#include "memcalc/families/torchvision/networks.h"
#include "memcalc/symbolic/ops/integer.h"

namespace memcalc {

namespace {

struct Variant {
  std::string_view name;
  std::array<std::int64_t, 4> widths;
  std::array<int, 4> blocks;
  double stochastic_depth;
};

constexpr Variant kVariants[] = {
    {"convnext_tiny", {96, 192, 384, 768}, {3, 3, 9, 3}, 0.1},
    {"convnext_small", {96, 192, 384, 768}, {3, 3, 27, 3}, 0.4},
    {"convnext_base", {128, 256, 512, 1024}, {3, 3, 27, 3}, 0.5},
    {"convnext_large", {192, 384, 768, 1536}, {3, 3, 27, 3}, 0.5},
};

/// LayerNorm2d: over channels, between two permutes.
Tensor layer_norm_2d(const LayerNorm& norm, const Tensor& image) {
  Tensor x = permute(image, {0, 2, 3, 1});
  x = norm(x);
  x = permute(x, {0, 3, 1, 2});
  return x;
}

/// CNBlock.
struct Block {
  Conv2d depthwise;
  LayerNorm norm;
  Linear expand, project;
  Tensor layer_scale;
  double drop_probability;

  Block(ModuleBuilder& b, std::int64_t dim, double drop)
      : depthwise(b, "block.0", dim, dim, 7, {.padding = 3, .groups = dim}, true),
        norm(b, "block.2", dim),
        expand(b, "block.3", dim, 4 * dim),
        project(b, "block.5", 4 * dim, dim),
        drop_probability(drop) {
    const Tensor ones = no_grad::ones(b.tape, {dim, 1, 1}, b.dtype);  // torch.ones(dim, 1, 1) * layer_scale
    layer_scale = b.parameter("layer_scale", {dim, 1, 1});
  }

  [[nodiscard]] Tensor branch(const Tensor& image) const {
    Tensor input = depthwise(image);
    input = permute(input, {0, 2, 3, 1});
    input = norm(input);
    input = expand(input);
    input = gelu(input);
    input = project(input);
    input = permute(input, {0, 3, 1, 2});
    return input;
  }

  [[nodiscard]] Tensor forward(const Tensor& input) const {
    Tensor result = layer_scale * branch(input);
    result = stochastic_depth(result, drop_probability);
    result = add_in_place(result, input);
    return result;
  }
};

class ConvNext : public ImageClassifier {
 public:
  ConvNext(const Variant& variant, std::int64_t num_classes, ModuleBuilder& b)
      : stem_(b, "features.0.0", 3, variant.widths[0], 4, {.stride = 4}, true),
        stem_norm_(b, "features.0.1", variant.widths[0]) {
    int total = 0;
    for (const int blocks : variant.blocks) total += blocks;
    int number = 0;
    for (std::size_t stage = 0; stage < 4; ++stage) {
      const std::string name = "features." + std::to_string(2 * stage + 1) + ".";
      for (int i = 0; i < variant.blocks[stage]; ++i) {
        const double drop = variant.stochastic_depth * number++ / (total - 1.0);
        const std::size_t first = b.parameters.size();
        stages_[stage].blocks.push_back(
            b.scope(name + std::to_string(i), [&] { return Block(b, variant.widths[stage], drop); }));
        // A module's own parameter comes before its submodules'.
        std::rotate(b.parameters.begin() + static_cast<std::ptrdiff_t>(first), b.parameters.end() - 1,
                    b.parameters.end());
      }
      if (stage == 3) break;
      const std::string down = "features." + std::to_string(2 * stage + 2) + ".";
      stages_[stage].down_norm = LayerNorm(b, down + "0", variant.widths[stage]);
      stages_[stage].down_conv =
          Conv2d(b, down + "1", variant.widths[stage], variant.widths[stage + 1], 2, {.stride = 2}, true);
    }
    norm_ = LayerNorm(b, "classifier.0", variant.widths[3]);
    classifier_ = Linear(b, "classifier.2", variant.widths[3], num_classes);
  }

  [[nodiscard]] Tensor forward(Tensor x) const override {
    x = features(x);
    x = adaptive_avg_pool2d(x, 1);
    x = classify(x);
    return x;
  }

 private:
  struct Stage {
    std::vector<Block> blocks;
    LayerNorm down_norm;
    Conv2d down_conv;
  };

  [[nodiscard]] Tensor stem(const Tensor& image) const {
    Tensor input = stem_(image);
    input = layer_norm_2d(stem_norm_, input);
    return input;
  }
  [[nodiscard]] static Tensor run(const Stage& stage, const Tensor& x) {
    Tensor input = x;
    for (const Block& block : stage.blocks) input = block.forward(input);
    return input;
  }
  [[nodiscard]] static Tensor downsample(const Stage& stage, const Tensor& x) {
    Tensor input = layer_norm_2d(stage.down_norm, x);
    input = stage.down_conv(input);
    return input;
  }
  [[nodiscard]] Tensor features(const Tensor& image) const {
    Tensor input = stem(image);
    for (std::size_t i = 0; i < 4; ++i) {
      input = run(stages_[i], input);
      if (i < 3) input = downsample(stages_[i], input);
    }
    return input;
  }
  [[nodiscard]] Tensor classify(const Tensor& pooled) const {
    Tensor input = layer_norm_2d(norm_, pooled);
    input = view(input, {input.size(0), -1});
    input = classifier_(input);
    return input;
  }

  Conv2d stem_;
  LayerNorm stem_norm_;
  std::array<Stage, 4> stages_;
  LayerNorm norm_;
  Linear classifier_;
};

}  // namespace

std::unique_ptr<ImageClassifier> build_convnext(const TorchvisionSpec& spec, ModuleBuilder& builder) {
  for (const Variant& variant : kVariants) {
    if (variant.name == spec.architecture) return std::make_unique<ConvNext>(variant, spec.num_classes, builder);
  }
  return nullptr;
}

}  // namespace memcalc
