// LayerHooks: what a wrapper of the model (FSDP) does around each layer's forward, as a module's forward hooks do: also
// inside a checkpointed region, and so again in its recomputation.
#pragma once

#include <cstdint>
#include <utility>

#include "memcalc/symbolic/checkpoint.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

class LayerHooks {
 public:
  virtual ~LayerHooks() = default;
  /// May replace arguments, as a forward pre-hook can.
  virtual void before_layer(std::int64_t layer, KeptTensors& arguments) = 0;
  virtual void after_layer(std::int64_t layer, const Tensor& output) = 0;
};

/// `layer` with the hooks around it.
template <typename Layer>
[[nodiscard]] auto hooked(LayerHooks& hooks, std::int64_t index, Layer layer) {
  return [&hooks, index, layer = std::move(layer)](const KeptTensors& kept) {
    KeptTensors arguments = kept;
    hooks.before_layer(index, arguments);
    Tensor output = layer(arguments);
    hooks.after_layer(index, output);
    return output;
  };
}

}  // namespace memcalc
