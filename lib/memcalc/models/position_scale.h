// get_llama_4_attn_scale, by which Ministral 3 and Mistral 4 scale their queries:
// (1 + beta * log(1 + floor(position_ids / max)))[:, None, :, None].
// MIRRORS(transformers, "models/ministral3/modeling_ministral3.py", "5.17.0")
#pragma once

#include <utility>

#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

/// In float32, for each position.
[[nodiscard]] inline Tensor position_scale(const Tensor& position_ids) {
  Tensor scaling;
  {
    Tensor floored = no_grad::absolute(no_grad::divide(position_ids));  // torch.floor asks for the same
    Tensor logarithm = no_grad::logarithm(no_grad::add(std::move(floored)));
    scaling = no_grad::add(no_grad::multiply(std::move(logarithm)));
  }
  return no_grad::unsqueeze(no_grad::unsqueeze(scaling, 1), -1);
}

}  // namespace memcalc
