// VGG 11 to 19, with and without batch norm: torchvision models/vgg.py.
// MIRRORS(torchvision, "models/vgg.py", "0.26.0")
#include "memcalc/families/torchvision/networks.h"

namespace memcalc {

namespace {

struct Variant {
  std::string_view name;
  std::array<int, 5> convolutions;  // before each pooling
};

constexpr Variant kVariants[] = {
    {"vgg11", {1, 1, 2, 2, 2}}, {"vgg13", {2, 2, 2, 2, 2}}, {"vgg16", {2, 2, 3, 3, 3}}, {"vgg19", {2, 2, 4, 4, 4}}};
constexpr std::array<std::int64_t, 5> kChannels = {64, 128, 256, 512, 512};
constexpr std::string_view kBatchNormSuffix = "_bn";

class Vgg : public ImageClassifier {
 public:
  Vgg(const Variant& variant, bool with_norm, std::int64_t num_classes, ModuleBuilder& b) {
    std::int64_t in = 3;
    int index = 0;
    for (std::size_t stage = 0; stage < kChannels.size(); ++stage) {
      for (int i = 0; i < variant.convolutions[stage]; ++i) {
        Unit unit;
        unit.conv = Conv2d(b, "features." + std::to_string(index++), in, kChannels[stage], 3, {.padding = 1}, true);
        if (with_norm) unit.norm.emplace_back(b, "features." + std::to_string(index++), kChannels[stage]);
        ++index;  // the activation
        in = kChannels[stage];
        stages_[stage].push_back(std::move(unit));
      }
      ++index;  // the pooling
    }
    fc1_ = Linear(b, "classifier.0", 512 * 7 * 7, 4096);
    fc2_ = Linear(b, "classifier.3", 4096, 4096);
    fc3_ = Linear(b, "classifier.6", 4096, num_classes);
  }

  [[nodiscard]] Tensor forward(Tensor x) const override {
    for (const auto& stage : stages_) {
      for (const Unit& unit : stage) {
        x = unit.conv(x);
        if (!unit.norm.empty()) x = unit.norm[0](x);
        x = relu_in_place(x);
      }
      x = max_pool2d(x, 2, 2, 0);
    }
    x = adaptive_avg_pool2d(x, 7);
    x = view(x, {x.size(0), -1});
    x = dropout(relu_in_place(fc1_(x)), 0.5);
    x = dropout(relu_in_place(fc2_(x)), 0.5);
    x = fc3_(x);
    return x;
  }

 private:
  struct Unit {
    Conv2d conv;
    std::vector<BatchNorm2d> norm;  // none or one
  };

  std::array<std::vector<Unit>, 5> stages_;
  Linear fc1_, fc2_, fc3_;
};

}  // namespace

std::unique_ptr<ImageClassifier> build_vgg(const TorchvisionSpec& spec, ModuleBuilder& builder) {
  std::string_view name = spec.architecture;
  const bool with_norm = name.ends_with(kBatchNormSuffix);
  if (with_norm) name.remove_suffix(kBatchNormSuffix.size());
  for (const Variant& variant : kVariants) {
    if (variant.name == name) return std::make_unique<Vgg>(variant, with_norm, spec.num_classes, builder);
  }
  return nullptr;
}

}  // namespace memcalc
