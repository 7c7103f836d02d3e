// Positions that skip padding: what RoBERTa and M2M-100 number their tokens by.
// MIRRORS(transformers, "models/roberta/modeling_roberta.py", "5.17.0")
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// create_position_ids_from_input_ids: [batch, tokens] int64, counting the tokens that are not padding.
[[nodiscard]] Tensor position_ids_of_tokens(const Tensor& input_ids);

}  // namespace memcalc
