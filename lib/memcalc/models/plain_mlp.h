// NemotronMLP, which Arcee's and Nemotron-H's repeat: down(act(up(x))), without a gate.
// MIRRORS(transformers, "models/nemotron_h/modeling_nemotron_h.py", "5.17.0")
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/models/module.h"

namespace memcalc {

struct PlainMlp {
  Linear up_proj, down_proj;
  std::string act_fn;

  template <typename Spec>
  PlainMlp(ModuleBuilder& b, const Spec& spec) : PlainMlp(b, spec, spec.intermediate_size) {}
  template <typename Spec>
  PlainMlp(ModuleBuilder& b, const Spec& spec, std::int64_t intermediate_size)
      : up_proj(b, "up_proj", spec.hidden_size, intermediate_size, spec.mlp_bias),
        down_proj(b, "down_proj", intermediate_size, spec.hidden_size, spec.mlp_bias),
        act_fn(spec.hidden_act) {}

  [[nodiscard]] Tensor forward(const Tensor& x) const {
    Tensor activated;
    {
      const Tensor up = up_proj(x);
      activated = activation_function(act_fn, up);
    }
    return down_proj(activated);
  }
};

}  // namespace memcalc
