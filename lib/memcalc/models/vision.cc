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

namespace {

/// The classifier and a cross entropy on its logits.
class TorchvisionModel : public Model {
 public:
  TorchvisionModel(const TorchvisionSpec& spec, ModuleBuilder& b) {
    for (const auto build :
         {build_resnet, build_vgg, build_densenet, build_mobilenet, build_efficientnet, build_convnext, build_swin}) {
      classifier_ = build(spec, b);
      if (classifier_) break;
    }
    if (!classifier_) {
      throw refusal(rules::kKnownTorchvision, {spec.architecture});
    }
    random_labels = true;
    accepts_loss_kwargs = false;  // in the Trainer a module around it computes the loss
    uses_sdpa = false;
    not_modelled.emplace_back(
        "which engine cuDNN picks for a convolution: its workspaces are those measured on an H100 at 224 pixels "
        "(13 batch sizes, neighbours between them); for other shapes the usual engine is assumed");
  }

  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    ModelOutput output;
    output.logits = classifier_->forward(batch.pixel_values);
    if (batch.labels.defined()) output.loss = cross_entropy(output.logits, batch.labels);
    return output;
  }

 private:
  std::unique_ptr<ImageClassifier> classifier_;
};

}  // namespace

namespace {}

std::unique_ptr<Model> build_torchvision(const TorchvisionSpec& spec, const RunSpec& /*run*/, ModuleBuilder& builder) {
  // torchvision's constructors make float32; m.to(dtype) then converts every floating-point tensor.
  const DType dtype = std::exchange(builder.dtype, DType::kFloat32);
  auto model = std::make_unique<TorchvisionModel>(spec, builder);
  if (dtype != DType::kFloat32) {
    for (const Tensor& tensor : builder.state) {
      if (is_floating(tensor.dtype())) builder.tape.convert(tensor, dtype, aten::kTo);
    }
  }
  builder.state.clear();
  return model;
}

}  // namespace memcalc
