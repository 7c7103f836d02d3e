// DenseNet: torchvision models/densenet.py, with memory_efficient = False.
// MIRRORS(torchvision, "models/densenet.py", "0.26.0")
#include <array>
#include <string>
#include <utility>

#include "memcalc/families/torchvision/networks.h"
#include "memcalc/symbolic/ops/concatenate.h"

namespace memcalc {

namespace {

struct Variant {
  std::string_view name;
  std::int64_t growth_rate;
  std::array<int, 4> blocks;
  std::int64_t init_features;
};

constexpr Variant kVariants[] = {
    {"densenet121", 32, {6, 12, 24, 16}, 64},
    {"densenet161", 48, {6, 12, 36, 24}, 96},
    {"densenet169", 32, {6, 12, 32, 32}, 64},
    {"densenet201", 32, {6, 12, 48, 32}, 64},
};

constexpr std::int64_t kBottleneck = 4;  // bn_size

/// _DenseLayer: what it adds to the features before it.
struct DenseLayer {
  BatchNorm2d norm1;
  Conv2d conv1;
  BatchNorm2d norm2;
  Conv2d conv2;

  DenseLayer(ModuleBuilder& b, std::int64_t in, std::int64_t growth_rate)
      : norm1(b, "norm1", in),
        conv1(b, "conv1", in, kBottleneck * growth_rate, 1, {}),
        norm2(b, "norm2", kBottleneck * growth_rate),
        conv2(b, "conv2", kBottleneck * growth_rate, growth_rate, 3, {.padding = 1}) {}

  [[nodiscard]] Tensor bn_function(const std::vector<Tensor>& inputs) const {
    const Tensor concated_features = concatenate(inputs, 1);
    return conv1(relu_in_place(norm1(concated_features)));
  }

  [[nodiscard]] Tensor forward(const std::vector<Tensor>& prev_features) const {
    const Tensor bottleneck_output = bn_function(prev_features);
    return conv2(relu_in_place(norm2(bottleneck_output)));
  }
};

struct Transition {
  BatchNorm2d norm;
  Conv2d conv;

  Transition(ModuleBuilder& b, std::int64_t in, std::int64_t out)
      : norm(b, "norm", in), conv(b, "conv", in, out, 1, {}) {}

  [[nodiscard]] Tensor forward(Tensor input) const {
    input = norm(input);
    input = relu_in_place(input);
    input = conv(input);
    input = avg_pool2d(input, 2);
    return input;
  }
};

class DenseNet : public ImageClassifier {
 public:
  DenseNet(const Variant& variant, std::int64_t num_classes, ModuleBuilder& b) {
    std::int64_t features = variant.init_features;
    b.scope("features", [&] {
      conv0_ = Conv2d(b, "conv0", 3, features, 7, {.stride = 2, .padding = 3});
      norm0_ = BatchNorm2d(b, "norm0", features);
      for (std::size_t i = 0; i < variant.blocks.size(); ++i) {
        const std::string number = std::to_string(i + 1);
        for (int j = 0; j < variant.blocks[i]; ++j) {
          blocks_[i].push_back(b.scope("denseblock" + number + ".denselayer" + std::to_string(j + 1),
                                       [&] { return DenseLayer(b, features, variant.growth_rate); }));
          features += variant.growth_rate;
        }
        if (i + 1 == variant.blocks.size()) continue;
        transitions_.push_back(b.scope("transition" + number, [&] { return Transition(b, features, features / 2); }));
        features /= 2;
      }
      norm5_ = BatchNorm2d(b, "norm5", features);
      return 0;
    });
    classifier_ = Linear(b, "classifier", features, num_classes);
  }

  [[nodiscard]] Tensor forward(Tensor x) const override {
    x = conv0_(x);
    x = norm0_(x);
    x = relu_in_place(x);
    x = max_pool2d(x, 3, 2, 1);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      x = run(blocks_[i], x);
      if (i < transitions_.size()) x = transitions_[i].forward(x);
    }
    x = norm5_(x);
    x = relu_in_place(x);
    x = adaptive_avg_pool2d(x, 1);
    x = view(x, {x.size(0), -1});
    x = classifier_(x);
    return x;
  }

 private:
  /// _DenseBlock. A Python list drops its elements from the end, but for the last, which has another name.
  [[nodiscard]] static Tensor run(const std::vector<DenseLayer>& layers, const Tensor& init_features) {
    std::vector<Tensor> features = {init_features};
    for (const DenseLayer& layer : layers) features.push_back(layer.forward(features));
    Tensor result = concatenate(features, 1);
    Tensor new_features = std::move(features.back());
    while (!features.empty()) features.pop_back();
    return result;
  }

  Conv2d conv0_;
  BatchNorm2d norm0_;
  std::array<std::vector<DenseLayer>, 4> blocks_;
  std::vector<Transition> transitions_;
  BatchNorm2d norm5_;
  Linear classifier_;
};

}  // namespace

std::unique_ptr<ImageClassifier> build_densenet(const TorchvisionSpec& spec, ModuleBuilder& builder) {
  for (const Variant& variant : kVariants) {
    if (variant.name == spec.architecture) return std::make_unique<DenseNet>(variant, spec.num_classes, builder);
  }
  return nullptr;
}

}  // namespace memcalc
