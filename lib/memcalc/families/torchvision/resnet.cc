// ResNet, Wide ResNet and ResNeXt: torchvision models/resnet.py.
// MIRRORS(torchvision, "models/resnet.py", "0.26.0")
#include <algorithm>
#include <array>

#include "memcalc/families/torchvision/networks.h"

namespace memcalc {

namespace {

struct Variant {
  std::string_view name;
  bool bottleneck;
  std::array<int, 4> blocks;
  std::int64_t groups = 1;
  std::int64_t width_per_group = 64;
};

constexpr Variant kVariants[] = {
    {"resnet18", false, {2, 2, 2, 2}},
    {"resnet34", false, {3, 4, 6, 3}},
    {"resnet50", true, {3, 4, 6, 3}},
    {"resnet101", true, {3, 4, 23, 3}},
    {"resnet152", true, {3, 8, 36, 3}},
    {"resnext50_32x4d", true, {3, 4, 6, 3}, 32, 4},
    {"resnext101_32x8d", true, {3, 4, 23, 3}, 32, 8},
    {"resnext101_64x4d", true, {3, 4, 23, 3}, 64, 4},
    {"wide_resnet50_2", true, {3, 4, 6, 3}, 1, 128},
    {"wide_resnet101_2", true, {3, 4, 23, 3}, 1, 128},
};

/// BasicBlock (two 3x3 convolutions) or Bottleneck (1x1, 3x3, 1x1).
struct Block {
  std::vector<Conv2d> convs;
  std::vector<BatchNorm2d> norms;
  std::vector<Conv2d> downsample_conv;  // none or one
  std::vector<BatchNorm2d> downsample_norm;

  [[nodiscard]] Tensor forward(const Tensor& x) const {
    Tensor identity = x;
    Tensor out = x;
    for (std::size_t i = 0; i < convs.size(); ++i) {
      out = convs[i](out);
      out = norms[i](out);
      if (i + 1 < convs.size()) out = relu_in_place(out);
    }
    if (!downsample_conv.empty()) identity = downsample_norm[0](downsample_conv[0](x));
    out = add_in_place(out, identity);
    out = relu_in_place(out);
    return out;
  }
};

class ResNet : public ImageClassifier {
 public:
  ResNet(const Variant& variant, std::int64_t num_classes, ModuleBuilder& b)
      : conv1_(b, "conv1", 3, 64, 7, {.stride = 2, .padding = 3}), bn1_(b, "bn1", 64) {
    std::int64_t in = 64;
    for (std::size_t stage = 0; stage < 4; ++stage) {
      const std::int64_t planes = std::int64_t{64} << stage;
      const std::string name = "layer" + std::to_string(stage + 1) + ".";
      for (int i = 0; i < variant.blocks[stage]; ++i) {
        const std::int64_t stride = i == 0 && stage > 0 ? 2 : 1;
        layers_[stage].push_back(
            b.scope(name + std::to_string(i), [&] { return block(variant, b, in, planes, stride); }));
        in = planes * (variant.bottleneck ? 4 : 1);
      }
    }
    fc_ = Linear(b, "fc", in, num_classes);
  }

  [[nodiscard]] Tensor forward(Tensor x) const override {
    x = conv1_(x);
    x = bn1_(x);
    x = relu_in_place(x);
    x = max_pool2d(x, 3, 2, 1);
    for (const auto& layer : layers_) x = run(layer, x);
    x = adaptive_avg_pool2d(x, 1);
    x = view(x, {x.size(0), -1});
    x = fc_(x);
    return x;
  }

 private:
  static Block block(const Variant& variant, ModuleBuilder& b, std::int64_t in, std::int64_t planes,
                     std::int64_t stride) {
    Block block;
    const std::int64_t out = planes * (variant.bottleneck ? 4 : 1);
    // _make_layer makes the shortcut before the block, which registers it last.
    const std::size_t first = b.parameters.size();
    const std::size_t first_state = b.state.size();
    if (stride != 1 || in != out) {
      block.downsample_conv.emplace_back(b, "downsample.0", in, out, 1, ConvolutionOptions{.stride = stride});
      block.downsample_norm.emplace_back(b, "downsample.1", out);
    }
    const std::size_t shortcut_end = b.parameters.size();
    const std::size_t shortcut_state_end = b.state.size();
    const auto add = [&](std::int64_t from, std::int64_t to, std::int64_t kernel, const ConvolutionOptions& options) {
      const std::string number = std::to_string(block.convs.size() + 1);
      block.convs.emplace_back(b, "conv" + number, from, to, kernel, options);
      block.norms.emplace_back(b, "bn" + number, to);
    };
    if (variant.bottleneck) {
      const std::int64_t width = planes * variant.width_per_group / 64 * variant.groups;
      add(in, width, 1, {});
      add(width, width, 3, {.stride = stride, .padding = 1, .groups = variant.groups});
      add(width, out, 1, {});
    } else {
      add(in, planes, 3, {.stride = stride, .padding = 1});
      add(planes, planes, 3, {.padding = 1});
    }
    const auto begin = b.parameters.begin();
    std::rotate(begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(shortcut_end),
                b.parameters.end());
    std::rotate(b.state.begin() + static_cast<std::ptrdiff_t>(first_state),
                b.state.begin() + static_cast<std::ptrdiff_t>(shortcut_state_end), b.state.end());
    return block;
  }

  [[nodiscard]] static Tensor run(const std::vector<Block>& layer, const Tensor& x) {
    Tensor input = x;
    for (const Block& block : layer) input = block.forward(input);
    return input;
  }

  Conv2d conv1_;
  BatchNorm2d bn1_;
  std::array<std::vector<Block>, 4> layers_;
  Linear fc_;
};

}  // namespace

std::unique_ptr<ImageClassifier> build_resnet(const TorchvisionSpec& spec, ModuleBuilder& builder) {
  for (const Variant& variant : kVariants) {
    if (variant.name == spec.architecture) return std::make_unique<ResNet>(variant, spec.num_classes, builder);
  }
  return nullptr;
}

}  // namespace memcalc
