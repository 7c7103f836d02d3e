// torchvision.models: a network, and the loss that a training loop puts behind it.
#include <utility>

#include "memcalc/families/torchvision/networks.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/loss.h"

namespace memcalc {

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

std::unique_ptr<Model> build_torchvision(const Architecture& architecture, const RunSpec& /*run*/,
                                         ModuleBuilder& builder) {
  // torchvision's constructors make float32; m.to(dtype) then converts every floating-point tensor.
  const DType dtype = std::exchange(builder.dtype, DType::kFloat32);
  auto model = std::make_unique<TorchvisionModel>(architecture.as<TorchvisionSpec>(), builder);
  if (dtype != DType::kFloat32) {
    for (const Tensor& tensor : builder.state) {
      if (is_floating(tensor.dtype())) builder.tape.convert(tensor, dtype, aten::kTo);
    }
  }
  builder.state.clear();
  return model;
}

}  // namespace memcalc
