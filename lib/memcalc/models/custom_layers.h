// A user's own layers as modules: each is a module of torch.nn, or the few lines around F.scaled_dot_product_attention
// that docs/specs.md shows.
#pragma once

#include <memory>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/spec/custom_shapes.h"

namespace memcalc::custom {

class LayerModule {
 public:
  virtual ~LayerModule() = default;
  [[nodiscard]] virtual Tensor forward(const Tensor& x) const = 0;
};

/// nn.Sequential: `for module in self: input = module(input)`.
class Chain : public LayerModule {
 public:
  Chain() = default;
  /// Makes the modules; `shape` becomes what they end in. `checkpoint`: repeated blocks may be checkpointed here
  /// (inside a checkpointed block nothing else is).
  Chain(const Layers& layers, SampleShape& shape, const RunSpec& run, ModuleBuilder& b, bool checkpoint);

  [[nodiscard]] Tensor forward(const Tensor& x) const override;
  [[nodiscard]] bool empty() const { return modules_.empty(); }

 private:
  std::vector<std::unique_ptr<LayerModule>> modules_;
};

/// The module of a layer that is no container. Throws as output_shape does.
[[nodiscard]] std::unique_ptr<LayerModule> make_module(const Layer& layer, const SampleShape& in, const RunSpec& run,
                                                       ModuleBuilder& b);

}  // namespace memcalc::custom
