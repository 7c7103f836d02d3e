// A user's own model: the layers of a file (docs/specs.md), as a plain torch.nn module with its loss.
#include <array>
#include <utility>

#include "memcalc/models/custom_layers.h"
#include "memcalc/models/model.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc::custom {

namespace {

Shape with_batch_dropped(const SampleShape& sample) {
  Shape shape;
  for (const std::int64_t size : sample.sizes) shape.dims[static_cast<std::size_t>(shape.rank++)] = size;
  return shape;
}

class CustomModel : public Model {
 public:
  CustomModel(const CustomSpec& spec, const RunSpec& run, ModuleBuilder& b) {
    const SampleShape input = input_shape(spec, run);
    if (!input.is_ids) input_features = with_batch_dropped(input);
    SampleShape shape = input;
    layers_ = b.scope("layers", [&] { return Chain(spec.layers, shape, run, b, /*checkpoint=*/true); });
    if (const auto* loss = std::get_if<CausalLmLoss>(&spec.loss)) {
      has_head_ = true;
      make_head(*loss, std::get<TokensInput>(spec.input).vocabulary, shape.last(), b);
    }
    if (shape.rank() == 2) sample_labels = {shape.sizes[0]};
    uses_sdpa = has_layer<AttentionLayer>(spec.layers);
    say_what_is_not_modelled(spec);
  }

  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    ModelOutput output;
    Tensor logits = layers_.forward(input_features.rank > 0 ? batch.input_features : batch.input_ids);
    if (has_head_) logits = head_(logits);
    if (!batch.labels.defined()) {
      output.logits = std::move(logits);
    } else if (logits.rank() == 2) {
      output.loss = cross_entropy(logits, batch.labels);
    } else {
      output.loss = cross_entropy(view(logits, {-1, logits.size(-1)}), view(batch.labels, {-1}));
    }
    return output;
  }

 private:
  void make_head(const CausalLmLoss& loss, std::int64_t vocabulary, std::int64_t width, ModuleBuilder& b) {
    if (!loss.tie_weights) {
      head_ = Linear(b, "head", width, vocabulary, loss.bias);
      return;
    }
    // nn.Linear makes a weight of its own, which dies where the embedding's takes its place.
    const Tensor own = b.until_tied({vocabulary, width});
    if (loss.bias) head_.bias = b.parameter("head.bias", {vocabulary}, false);
    for (const Parameter& parameter : b.parameters) {
      // The first table of that shape is the first embedding's: nothing stands before it.
      if (parameter.tensor.shape() == own.shape()) {
        head_.weight = parameter.tensor;
        return;
      }
    }
    throw Error(ErrorCode::kInternal, "a tied head without an embedding");
  }

  void say_what_is_not_modelled(const CustomSpec& spec) {
    bool two = false, one = false;
    for_each_layer(spec.layers, [&](const Layer& layer) {
      if (const auto* conv = std::get_if<ConvolutionLayer>(&layer.kind)) (conv->dimensions == 2 ? two : one) = true;
    });
    if (two) {
      not_modelled.emplace_back(
          "which engine cuDNN picks for a convolution: its workspaces are those measured on an H100 for the layers of "
          "torchvision's classifiers and of small networks; for other shapes the usual engine is assumed");
    }
    if (one) not_modelled.emplace_back("cuDNN's workspaces and layouts for one-dimensional convolutions");
  }

  Chain layers_;
  bool has_head_ = false;
  Linear head_;
};

}  // namespace

}  // namespace memcalc::custom

namespace memcalc {

std::unique_ptr<Model> build_custom(const CustomSpec& spec, const RunSpec& run, ModuleBuilder& builder) {
  // torch's constructors make float32; m.to(dtype) then converts every floating-point tensor.
  const DType dtype = std::exchange(builder.dtype, DType::kFloat32);
  auto model = std::make_unique<custom::CustomModel>(spec, run, builder);
  if (dtype != DType::kFloat32) {
    for (const Tensor& tensor : builder.state) {
      if (is_floating(tensor.dtype())) builder.tape.convert(tensor, dtype, aten::kTo);
    }
  }
  builder.state.clear();
  return model;
}

}  // namespace memcalc
