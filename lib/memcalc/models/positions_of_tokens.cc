#include "memcalc/models/positions_of_tokens.h"

#include "memcalc/symbolic/ops/integer.h"

namespace memcalc {

Tensor position_ids_of_tokens(const Tensor& input_ids) {
  Tensor mask = no_grad::to(no_grad::not_equal(input_ids), DType::kInt32);
  Tensor incremental_indices =
      no_grad::multiply(no_grad::add(no_grad::to(no_grad::cumsum(mask, 1), DType::kInt32)), mask);
  Tensor positions = no_grad::add(no_grad::to(incremental_indices, DType::kInt64));
  drop(mask, incremental_indices);
  return positions;
}

}  // namespace memcalc
