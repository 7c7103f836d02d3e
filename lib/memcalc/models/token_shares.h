// How a router without training shares tokens out among experts: of no consequence where the experts are one product,
// but a loop makes tensors of each one's size. Covered by tests/unit/token_shares_test.cc.
#pragma once

#include <cstdint>
#include <vector>

namespace memcalc {

/// Of each expert how many tokens choose it, `top_k` a token. A model without training gives its tokens a common
/// direction, so that a router prefers some experts for all of them; which, differs between layers. The sum is
/// tokens * top_k, none has more than all tokens, and the same question has the same answer.
[[nodiscard]] std::vector<std::int64_t> tokens_of_experts(std::int64_t tokens, std::int64_t top_k, std::int64_t experts,
                                                          std::int64_t layer);

}  // namespace memcalc
