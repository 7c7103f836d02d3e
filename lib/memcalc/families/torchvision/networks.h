// The networks of torchvision.models, each in a file of its own.
#pragma once

#include <memory>

#include "memcalc/families/torchvision/spec.h"
#include "memcalc/models/vision.h"

namespace memcalc {

/// The layers of a classifier: images to logits.
class ImageClassifier {
 public:
  virtual ~ImageClassifier() = default;
  /// `x` is the caller's only handle: as in Python, a layer's input dies when its variable is assigned again.
  [[nodiscard]] virtual Tensor forward(Tensor x) const = 0;
};

/// Null where the family has no model of that name.
[[nodiscard]] std::unique_ptr<ImageClassifier> build_resnet(const TorchvisionSpec& spec, ModuleBuilder& builder);
[[nodiscard]] std::unique_ptr<ImageClassifier> build_densenet(const TorchvisionSpec& spec, ModuleBuilder& builder);
[[nodiscard]] std::unique_ptr<ImageClassifier> build_vgg(const TorchvisionSpec& spec, ModuleBuilder& builder);
[[nodiscard]] std::unique_ptr<ImageClassifier> build_mobilenet(const TorchvisionSpec& spec, ModuleBuilder& builder);
[[nodiscard]] std::unique_ptr<ImageClassifier> build_efficientnet(const TorchvisionSpec& spec, ModuleBuilder& builder);
[[nodiscard]] std::unique_ptr<ImageClassifier> build_convnext(const TorchvisionSpec& spec, ModuleBuilder& builder);
[[nodiscard]] std::unique_ptr<ImageClassifier> build_swin(const TorchvisionSpec& spec, ModuleBuilder& builder);

}  // namespace memcalc
