#include "memcalc/models/vision.h"

#include <algorithm>
#include <utility>

#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/loss.h"

namespace memcalc {

namespace {

std::string dotted(std::string_view name, std::string_view leaf) { return std::string(name) + "." + std::string(leaf); }

}  // namespace

Conv2d::Conv2d(ModuleBuilder& builder, std::string_view name, std::int64_t in, std::int64_t out, std::int64_t kernel,
               const ConvolutionOptions& options, bool with_bias)
    : weight(builder.parameter(dotted(name, "weight"), {out, in / options.groups, kernel, kernel})), options(options) {
  if (with_bias) bias = builder.parameter(dotted(name, "bias"), {out}, false);
}

BatchNorm2d::BatchNorm2d(ModuleBuilder& builder, std::string_view name, std::int64_t features)
    : weight(builder.parameter(dotted(name, "weight"), {features})),  // decays: the Trainer spares nn.LayerNorm alone
      bias(builder.parameter(dotted(name, "bias"), {features}, false)),
      running_mean(builder.buffer({features}, builder.dtype)),
      running_var(builder.buffer({features}, builder.dtype)),
      num_batches_tracked(builder.buffer({}, DType::kInt64)) {}

Tensor activate_in_place(ImageActivation activation, const Tensor& x) {
  switch (activation) {
    case ImageActivation::kRelu: return relu_in_place(x);
    case ImageActivation::kRelu6: return relu6_in_place(x);
    case ImageActivation::kSilu: return silu_in_place(x);
    case ImageActivation::kHardswish: return hardswish_in_place(x);
    case ImageActivation::kNone: break;
  }
  return x;
}

ConvNormActivation::ConvNormActivation(ModuleBuilder& builder, std::string_view name, std::int64_t in, std::int64_t out,
                                       std::int64_t kernel, std::int64_t stride, std::int64_t groups,
                                       ImageActivation activation)
    : conv(builder, dotted(name, "0"), in, out, kernel,
           {.stride = stride, .padding = (kernel - 1) / 2, .groups = groups}),
      norm(builder, dotted(name, "1"), out),
      activation(activation) {}

Tensor ConvNormActivation::operator()(const Tensor& input) const {
  Tensor x = conv(input);
  x = norm(x);
  x = activate_in_place(activation, x);
  return x;
}

SqueezeExcitation::SqueezeExcitation(ModuleBuilder& builder, std::string_view name, std::int64_t channels,
                                     std::int64_t squeezed, bool hard)
    : fc1(builder, dotted(name, "fc1"), channels, squeezed, 1, {}, true),
      fc2(builder, dotted(name, "fc2"), squeezed, channels, 1, {}, true),
      hard(hard) {}

Tensor SqueezeExcitation::scale(const Tensor& x) const {
  Tensor scale = adaptive_avg_pool2d(x, 1);
  scale = fc1(scale);
  scale = hard ? relu(scale) : silu_in_place(scale);
  scale = fc2(scale);
  return hard ? hardsigmoid(scale) : sigmoid(scale);
}

Tensor SqueezeExcitation::operator()(const Tensor& x) const {
  const Tensor weights = scale(x);
  return weights * x;
}

std::int64_t make_divisible(double value) {
  const auto rounded = std::max<std::int64_t>(8, static_cast<std::int64_t>(value + 4) / 8 * 8);
  return static_cast<double>(rounded) < 0.9 * value ? rounded + 8 : rounded;
}

}  // namespace memcalc
