// Rotary positions as complex numbers: DeepSeek-V2, Llama 4.
// MIRRORS(transformers, "models/deepseek_v2/modeling_deepseek_v2.py", "5.17.0")
// MIRRORS(transformers, "models/llama4/modeling_llama4.py", "5.17.0")
#pragma once

#include <optional>

#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

/// DeepseekV2RotaryEmbedding, Llama4TextRotaryEmbedding: positions as complex numbers, which take the place of the
/// cosines.
[[nodiscard]] RotaryPositions complex_positions(const RotaryEmbedding& rotary, const Tensor& x,
                                                const Tensor& position_ids, std::optional<DType> dtype);

/// torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
[[nodiscard]] Tensor as_complex(const Tensor& x);

/// torch.view_as_real(complex * freqs_cis) in the shape of x: float32.
[[nodiscard]] Tensor rotated_complex(const Tensor& x, const Tensor& complex, const Tensor& freqs_cis);

}  // namespace memcalc
