// Adapters of parameters that are no nn.Linear's: peft nests a ParamWrapper for each of them around the module that
// holds them, which adds the adapter to the parameter whenever the module runs. train/adapters.cc makes the adapters;
// until then the module computes as any other.
// MIRRORS(peft, "tuners/lora/layer.py", "0.21.2")
// MIRRORS(torch, "nn/utils/parametrize.py", "2.11.0")
// MIRRORS(bitsandbytes, "nn/parametrize.py", "0.50.2")
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/symbolic/ops/quantized.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

struct ConvertedTargets;

/// lora.ParamWrapper of a matrix [out, in], or of one for each expert.
struct ParamWrapper {
  Tensor parameter;
  bool is_transposed = false;  // [experts, in, out], or peft takes it for that
  Tensor lora_a{}, lora_b{};   // [rank * experts, in], [out, rank * experts]

  [[nodiscard]] std::int64_t experts() const { return parameter.rank() == 3 ? parameter.size(0) : 1; }
  [[nodiscard]] std::int64_t in_features() const { return parameter.size(is_transposed ? -2 : -1); }
  [[nodiscard]] std::int64_t out_features() const { return parameter.size(is_transposed ? -1 : -2); }
};

/// A parameter that bitsandbytes' replace_parameter_4bit packed: it is unpacked whenever it is read.
struct PackedParameter {
  Tensor parameter;
  Shape shape{};  // of the matrices
  QuantizedWeight weight{};
};

/// A module with parameters of its own, and the wrappers around it, innermost first.
struct WrappedModule {
  std::string name;                 // "model.layers.0.mlp.experts"
  std::size_t first_parameter = 0;  // places of its parameters among the model's, those of modules inside it as well
  std::size_t last_parameter = 0;
  bool is_transposed = false;                   // use_experts_implementation(is_transposed=True)
  const ConvertedTargets* converted = nullptr;  // peft's names of its parameters; null: their own
  std::vector<ParamWrapper> wrappers;
  std::vector<PackedParameter> packed;
};

/// ParamWrapper.get_delta_weight: the adapter as one tensor of the parameter's shape.
[[nodiscard]] Tensor delta_weight(const ParamWrapper& wrapper);

/// While a module runs: ParamWrapper._activate_lora of each wrapper, from the outermost to the innermost. Ends when the
/// module's own variables have died.
class ActiveWrappers {
 public:
  /// Null: a module without wrappers.
  explicit ActiveWrappers(const WrappedModule* module);
  ~ActiveWrappers();
  ActiveWrappers(const ActiveWrappers&) = delete;
  ActiveWrappers& operator=(const ActiveWrappers&) = delete;

  /// self.NAME in the module: unpacked where it is packed; with the adapter where it has one, which is added once
  /// (parametrize.cached; peft 0.18: each time).
  [[nodiscard]] Tensor read(const Tensor& parameter);

 private:
  /// _LoraFactorsProxy, which keeps the factors, or _LoraParameterProxy, which keeps their product.
  struct Proxy {
    const ParamWrapper* wrapper = nullptr;
    Tensor lhs{}, rhs{}, delta_weight{};

    [[nodiscard]] Tensor added() const;
  };
  [[nodiscard]] static Proxy proxy_of(const ParamWrapper& wrapper);

  const WrappedModule* module_ = nullptr;
  std::vector<Proxy> proxies_;  // outermost first
  std::vector<std::pair<const TensorImpl*, Tensor>> cache_;
};

}  // namespace memcalc
