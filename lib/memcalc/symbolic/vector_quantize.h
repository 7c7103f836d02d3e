// bitsandbytes' kernels that compute more than they move, so that cost/ tells them from others: rows of float16 to 8
// bits, and the optimizers' updates; and what fetches pages of managed memory.
#pragma once

#include "memcalc/symbolic/trace.h"

namespace memcalc {

inline constexpr Operator kVectorQuantize{"bitsandbytes::int8_vectorwise_quant"};
inline constexpr Operator kUpdate32bit{"bitsandbytes::optimizer_update_32bit"};
inline constexpr Operator kUpdate8bit{"bitsandbytes::optimizer_update_8bit_blockwise"};  // of two states and more
inline constexpr Operator kUpdate8bitOneState{"bitsandbytes::optimizer_update_8bit_blockwise"};
inline constexpr Operator kPrefetch{"bitsandbytes::cprefetch"};  // its elements are the bytes of the states

}  // namespace memcalc
