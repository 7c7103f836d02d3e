// What torchvision's classifiers share: their modules, and the loss that a training loop puts behind them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/batch_norm.h"
#include "memcalc/symbolic/ops/conv.h"
#include "memcalc/symbolic/ops/pool.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

/// nn.Conv2d: weight [out, in / groups, k, k], bias [out].
struct Conv2d {
  Tensor weight, bias;
  ConvolutionOptions options;
  Conv2d() = default;
  Conv2d(ModuleBuilder& builder, std::string_view name, std::int64_t in, std::int64_t out, std::int64_t kernel,
         const ConvolutionOptions& options, bool with_bias = false);
  [[nodiscard]] Tensor operator()(const Tensor& x) const { return conv2d(x, weight, bias, options); }
};

/// nn.BatchNorm2d with its running statistics.
struct BatchNorm2d {
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;
  BatchNorm2d() = default;
  BatchNorm2d(ModuleBuilder& builder, std::string_view name, std::int64_t features);
  [[nodiscard]] Tensor operator()(const Tensor& x) const { return batch_norm(x, weight, bias); }
};

enum class ImageActivation { kNone, kRelu, kRelu6, kSilu, kHardswish };

/// In place, as every torchvision model here asks for it.
[[nodiscard]] Tensor activate_in_place(ImageActivation activation, const Tensor& x);

/// ops.misc.Conv2dNormActivation with "same" padding: convolution, batch norm, activation.
struct ConvNormActivation {
  Conv2d conv;
  BatchNorm2d norm;
  ImageActivation activation = ImageActivation::kNone;
  ConvNormActivation() = default;
  ConvNormActivation(ModuleBuilder& builder, std::string_view name, std::int64_t in, std::int64_t out,
                     std::int64_t kernel, std::int64_t stride, std::int64_t groups, ImageActivation activation);
  [[nodiscard]] Tensor operator()(const Tensor& x) const;
};

/// ops.misc.SqueezeExcitation: channels weighted by what a small net says of their means.
struct SqueezeExcitation {
  Conv2d fc1, fc2;
  bool hard = false;  // MobileNet v3: ReLU and hard sigmoid; EfficientNet: SiLU in place and sigmoid
  SqueezeExcitation() = default;
  SqueezeExcitation(ModuleBuilder& builder, std::string_view name, std::int64_t channels, std::int64_t squeezed,
                    bool hard);
  [[nodiscard]] Tensor operator()(const Tensor& x) const;

 private:
  [[nodiscard]] Tensor scale(const Tensor& x) const;
};

/// MobileNet's rule: the nearest multiple of 8 that is not below 90 %.
[[nodiscard]] std::int64_t make_divisible(double value);

}  // namespace memcalc
