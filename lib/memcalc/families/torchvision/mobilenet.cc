// MobileNet v2 and v3: torchvision models/mobilenetv2.py, mobilenetv3.py.
// MIRRORS(torchvision, "models/mobilenetv2.py", "0.26.0")
#include <array>
#include <span>

#include "memcalc/families/torchvision/networks.h"

namespace memcalc {

namespace {

constexpr ImageActivation kNone = ImageActivation::kNone, kRelu = ImageActivation::kRelu;
constexpr ImageActivation kHardswish = ImageActivation::kHardswish, kRelu6 = ImageActivation::kRelu6;

/// bneck_conf of mobilenetv3.py.
struct Row {
  std::int64_t in, kernel, expanded, out;
  bool squeezes;
  ImageActivation activation;
  std::int64_t stride;
};

constexpr Row kLarge[] = {
    {16, 3, 16, 16, false, kRelu, 1},        {16, 3, 64, 24, false, kRelu, 2},
    {24, 3, 72, 24, false, kRelu, 1},        {24, 5, 72, 40, true, kRelu, 2},
    {40, 5, 120, 40, true, kRelu, 1},        {40, 5, 120, 40, true, kRelu, 1},
    {40, 3, 240, 80, false, kHardswish, 2},  {80, 3, 200, 80, false, kHardswish, 1},
    {80, 3, 184, 80, false, kHardswish, 1},  {80, 3, 184, 80, false, kHardswish, 1},
    {80, 3, 480, 112, true, kHardswish, 1},  {112, 3, 672, 112, true, kHardswish, 1},
    {112, 5, 672, 160, true, kHardswish, 2}, {160, 5, 960, 160, true, kHardswish, 1},
    {160, 5, 960, 160, true, kHardswish, 1},
};
constexpr Row kSmall[] = {
    {16, 3, 16, 16, true, kRelu, 2},       {16, 3, 72, 24, false, kRelu, 2},      {24, 3, 88, 24, false, kRelu, 1},
    {24, 5, 96, 40, true, kHardswish, 2},  {40, 5, 240, 40, true, kHardswish, 1}, {40, 5, 240, 40, true, kHardswish, 1},
    {40, 5, 120, 48, true, kHardswish, 1}, {48, 5, 144, 48, true, kHardswish, 1}, {48, 5, 288, 96, true, kHardswish, 2},
    {96, 5, 576, 96, true, kHardswish, 1}, {96, 5, 576, 96, true, kHardswish, 1},
};

/// v3's InvertedResidual: expand, depthwise, squeeze, project.
struct BlockV3 {
  std::vector<ConvNormActivation> before;  // expansion where there is one, depthwise
  std::vector<SqueezeExcitation> squeeze;  // none or one
  ConvNormActivation project;
  bool residual = false;

  BlockV3(ModuleBuilder& b, const Row& row) : residual(row.stride == 1 && row.in == row.out) {
    int index = 0;
    const auto name = [&] { return "block." + std::to_string(index++); };
    if (row.expanded != row.in) before.emplace_back(b, name(), row.in, row.expanded, 1, 1, 1, row.activation);
    before.emplace_back(b, name(), row.expanded, row.expanded, row.kernel, row.stride, row.expanded, row.activation);
    if (row.squeezes) {
      squeeze.emplace_back(b, name(), row.expanded, make_divisible(static_cast<double>(row.expanded / 4)), true);
    }
    project = ConvNormActivation(b, name(), row.expanded, row.out, 1, 1, 1, kNone);
  }

  [[nodiscard]] Tensor forward(const Tensor& input) const {
    Tensor result = input;
    for (const ConvNormActivation& layer : before) result = layer(result);
    if (!squeeze.empty()) result = squeeze[0](result);
    result = project(result);
    if (residual) result = add_in_place(result, input);
    return result;
  }
};

class MobileNetV3 : public ImageClassifier {
 public:
  MobileNetV3(std::span<const Row> rows, std::int64_t last_channel, std::int64_t num_classes, ModuleBuilder& b)
      : first_(b, "features.0", 3, rows.front().in, 3, 2, 1, kHardswish) {
    int index = 1;
    for (const Row& row : rows) {
      blocks_.push_back(b.scope("features." + std::to_string(index++), [&] { return BlockV3(b, row); }));
    }
    const std::int64_t in = rows.back().out;
    last_ = ConvNormActivation(b, "features." + std::to_string(index), in, 6 * in, 1, 1, 1, kHardswish);
    fc1_ = Linear(b, "classifier.0", 6 * in, last_channel);
    fc2_ = Linear(b, "classifier.3", last_channel, num_classes);
  }

  [[nodiscard]] Tensor forward(Tensor x) const override {
    {
      Tensor features = first_(x);
      for (const BlockV3& block : blocks_) features = block.forward(features);
      features = last_(features);
      x = std::move(features);
    }
    x = adaptive_avg_pool2d(x, 1);
    x = view(x, {x.size(0), -1});
    x = fc2_(dropout_in_place(hardswish_in_place(fc1_(x)), 0.2));
    return x;
  }

 private:
  ConvNormActivation first_, last_;
  std::vector<BlockV3> blocks_;
  Linear fc1_, fc2_;
};

/// v2's InvertedResidual: its projection has no activation, its residual is out of place.
struct BlockV2 {
  std::vector<ConvNormActivation> before;
  Conv2d project;
  BatchNorm2d norm;
  bool residual = false;

  BlockV2(ModuleBuilder& b, std::int64_t in, std::int64_t out, std::int64_t stride, std::int64_t ratio)
      : residual(stride == 1 && in == out) {
    const std::int64_t hidden = in * ratio;
    int index = 0;
    const auto name = [&] { return "conv." + std::to_string(index++); };
    if (ratio != 1) before.emplace_back(b, name(), in, hidden, 1, 1, 1, kRelu6);
    before.emplace_back(b, name(), hidden, hidden, 3, stride, hidden, kRelu6);
    project = Conv2d(b, name(), hidden, out, 1, {});
    norm = BatchNorm2d(b, name(), out);
  }

  [[nodiscard]] Tensor branch(const Tensor& input) const {
    Tensor x = input;
    for (const ConvNormActivation& layer : before) x = layer(x);
    x = project(x);
    x = norm(x);
    return x;
  }
  [[nodiscard]] Tensor forward(const Tensor& x) const { return residual ? x + branch(x) : branch(x); }
};

class MobileNetV2 : public ImageClassifier {
 public:
  MobileNetV2(std::int64_t num_classes, ModuleBuilder& b) : first_(b, "features.0", 3, 32, 3, 2, 1, kRelu6) {
    struct Stage {
      std::int64_t ratio, channels, repeats, stride;
    };
    constexpr Stage kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                 {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    std::int64_t in = 32;
    int index = 1;
    for (const Stage& stage : kStages) {
      for (std::int64_t i = 0; i < stage.repeats; ++i) {
        const std::int64_t stride = i == 0 ? stage.stride : 1;
        blocks_.push_back(b.scope("features." + std::to_string(index++),
                                  [&] { return BlockV2(b, in, stage.channels, stride, stage.ratio); }));
        in = stage.channels;
      }
    }
    last_ = ConvNormActivation(b, "features." + std::to_string(index), in, 1280, 1, 1, 1, kRelu6);
    classifier_ = Linear(b, "classifier.1", 1280, num_classes);
  }

  [[nodiscard]] Tensor forward(Tensor x) const override {
    {
      Tensor features = first_(x);
      for (const BlockV2& block : blocks_) features = block.forward(features);
      features = last_(features);
      x = std::move(features);
    }
    x = adaptive_avg_pool2d(x, 1);
    x = view(x, {x.size(0), -1});
    // nn.Sequential's own variable drops the dropout's input, which `x` still holds.
    Tensor input = dropout(x, 0.2);
    input = classifier_(input);
    x = std::move(input);
    return x;
  }

 private:
  ConvNormActivation first_, last_;
  std::vector<BlockV2> blocks_;
  Linear classifier_;
};

}  // namespace

std::unique_ptr<ImageClassifier> build_mobilenet(const TorchvisionSpec& spec, ModuleBuilder& builder) {
  const std::string& name = spec.architecture;
  if (name == "mobilenet_v2") return std::make_unique<MobileNetV2>(spec.num_classes, builder);
  if (name == "mobilenet_v3_large") return std::make_unique<MobileNetV3>(kLarge, 1280, spec.num_classes, builder);
  if (name == "mobilenet_v3_small") return std::make_unique<MobileNetV3>(kSmall, 1024, spec.num_classes, builder);
  return nullptr;
}

}  // namespace memcalc
