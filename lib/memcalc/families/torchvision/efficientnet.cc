// EfficientNet v1 and v2: torchvision models/efficientnet.py.
// MIRRORS(torchvision, "models/efficientnet.py", "0.26.0")
#include <algorithm>
#include <cmath>
#include <span>

#include "memcalc/families/torchvision/networks.h"

namespace memcalc {

namespace {

constexpr ImageActivation kSilu = ImageActivation::kSilu, kNone = ImageActivation::kNone;
constexpr double kStochasticDepth = 0.2;

struct Stage {
  bool fused;
  std::int64_t ratio, kernel, stride, in, out, layers;
};

constexpr Stage kV1[] = {{false, 1, 3, 1, 32, 16, 1},  {false, 6, 3, 2, 16, 24, 2},  {false, 6, 5, 2, 24, 40, 2},
                         {false, 6, 3, 2, 40, 80, 3},  {false, 6, 5, 1, 80, 112, 3}, {false, 6, 5, 2, 112, 192, 4},
                         {false, 6, 3, 1, 192, 320, 1}};
constexpr Stage kV2Small[] = {{true, 1, 3, 1, 24, 24, 2},    {true, 4, 3, 2, 24, 48, 4},
                              {true, 4, 3, 2, 48, 64, 4},    {false, 4, 3, 2, 64, 128, 6},
                              {false, 6, 3, 1, 128, 160, 9}, {false, 6, 3, 2, 160, 256, 15}};
constexpr Stage kV2Medium[] = {{true, 1, 3, 1, 24, 24, 3},     {true, 4, 3, 2, 24, 48, 5},
                               {true, 4, 3, 2, 48, 80, 5},     {false, 4, 3, 2, 80, 160, 7},
                               {false, 6, 3, 1, 160, 176, 14}, {false, 6, 3, 2, 176, 304, 18},
                               {false, 6, 3, 1, 304, 512, 5}};
constexpr Stage kV2Large[] = {{true, 1, 3, 1, 32, 32, 4},     {true, 4, 3, 2, 32, 64, 7},
                              {true, 4, 3, 2, 64, 96, 7},     {false, 4, 3, 2, 96, 192, 10},
                              {false, 6, 3, 1, 192, 224, 19}, {false, 6, 3, 2, 224, 384, 25},
                              {false, 6, 3, 1, 384, 640, 7}};

struct Variant {
  std::string_view name;
  std::span<const Stage> stages;
  double width, depth, dropout;
  std::int64_t last_channel;  // 0: four times the last stage's
};

constexpr Variant kVariants[] = {
    {"efficientnet_b0", kV1, 1.0, 1.0, 0.2, 0},       {"efficientnet_b1", kV1, 1.0, 1.1, 0.2, 0},
    {"efficientnet_b2", kV1, 1.1, 1.2, 0.3, 0},       {"efficientnet_b3", kV1, 1.2, 1.4, 0.3, 0},
    {"efficientnet_b4", kV1, 1.4, 1.8, 0.4, 0},       {"efficientnet_b5", kV1, 1.6, 2.2, 0.4, 0},
    {"efficientnet_b6", kV1, 1.8, 2.6, 0.5, 0},       {"efficientnet_b7", kV1, 2.0, 3.1, 0.5, 0},
    {"efficientnet_v2_s", kV2Small, 1, 1, 0.2, 1280}, {"efficientnet_v2_m", kV2Medium, 1, 1, 0.3, 1280},
    {"efficientnet_v2_l", kV2Large, 1, 1, 0.4, 1280},
};

/// MBConv and FusedMBConv.
struct Block {
  std::vector<ConvNormActivation> before;
  std::vector<SqueezeExcitation> squeeze;
  std::vector<ConvNormActivation> project;
  bool residual = false;
  double drop_probability = 0;

  Block(ModuleBuilder& b, const Stage& stage, std::int64_t in, std::int64_t out, std::int64_t stride, double drop)
      : residual(stride == 1 && in == out), drop_probability(drop) {
    const std::int64_t expanded = make_divisible(static_cast<double>(in * stage.ratio));
    int index = 0;
    const auto name = [&] { return "block." + std::to_string(index++); };
    if (stage.fused) {
      const bool expands = expanded != in;
      before.emplace_back(b, name(), in, expands ? expanded : out, stage.kernel, stride, 1, kSilu);
      if (expands) project.emplace_back(b, name(), expanded, out, 1, 1, 1, kNone);
      return;
    }
    if (expanded != in) before.emplace_back(b, name(), in, expanded, 1, 1, 1, kSilu);
    before.emplace_back(b, name(), expanded, expanded, stage.kernel, stride, expanded, kSilu);
    squeeze.emplace_back(b, name(), expanded, std::max<std::int64_t>(1, in / 4), false);
    project.emplace_back(b, name(), expanded, out, 1, 1, 1, kNone);
  }

  [[nodiscard]] Tensor forward(const Tensor& input) const {
    Tensor result = input;
    for (const ConvNormActivation& layer : before) result = layer(result);
    if (!squeeze.empty()) result = squeeze[0](result);
    if (!project.empty()) result = project[0](result);
    if (residual) {
      result = stochastic_depth(result, drop_probability);
      result = add_in_place(result, input);
    }
    return result;
  }
};

class EfficientNet : public ImageClassifier {
 public:
  EfficientNet(const Variant& variant, std::int64_t num_classes, ModuleBuilder& b) : dropout_p_(variant.dropout) {
    const auto channels = [&](std::int64_t n) {
      return variant.last_channel != 0 ? n : make_divisible(static_cast<double>(n) * variant.width);
    };
    const auto layers = [&](std::int64_t n) {
      return static_cast<std::int64_t>(std::ceil(static_cast<double>(n) * variant.depth));
    };
    std::int64_t total = 0;
    for (const Stage& stage : variant.stages) total += layers(stage.layers);
    std::int64_t in = channels(variant.stages.front().in);
    first_ = ConvNormActivation(b, "features.0", 3, in, 3, 2, 1, kSilu);
    std::int64_t number = 0;
    int index = 1;
    for (const Stage& stage : variant.stages) {
      const std::int64_t out = channels(stage.out);
      std::vector<Block>& blocks = stages_.emplace_back();
      for (std::int64_t i = 0; i < layers(stage.layers); ++i) {
        const double drop = kStochasticDepth * static_cast<double>(number++) / static_cast<double>(total);
        blocks.push_back(b.scope("features." + std::to_string(index) + "." + std::to_string(i),
                                 [&] { return Block(b, stage, in, out, i == 0 ? stage.stride : 1, drop); }));
        in = out;
      }
      ++index;
    }
    const std::int64_t last = variant.last_channel != 0 ? variant.last_channel : 4 * in;
    last_ = ConvNormActivation(b, "features." + std::to_string(index), in, last, 1, 1, 1, kSilu);
    classifier_ = Linear(b, "classifier.1", last, num_classes);
  }

  [[nodiscard]] Tensor forward(Tensor x) const override {
    {
      Tensor features = first_(x);
      for (const auto& stage : stages_) {
        Tensor input = features;
        for (const Block& block : stage) input = block.forward(input);
        features = std::move(input);
      }
      features = last_(features);
      x = std::move(features);
    }
    x = adaptive_avg_pool2d(x, 1);
    x = view(x, {x.size(0), -1});
    x = classifier_(dropout_in_place(x, dropout_p_));
    return x;
  }

 private:
  double dropout_p_;
  ConvNormActivation first_, last_;
  std::vector<std::vector<Block>> stages_;
  Linear classifier_;
};

}  // namespace

std::unique_ptr<ImageClassifier> build_efficientnet(const TorchvisionSpec& spec, ModuleBuilder& builder) {
  for (const Variant& variant : kVariants) {
    if (variant.name == spec.architecture) return std::make_unique<EfficientNet>(variant, spec.num_classes, builder);
  }
  return nullptr;
}

}  // namespace memcalc
