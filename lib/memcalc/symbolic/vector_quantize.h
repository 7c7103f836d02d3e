// bitsandbytes' kernel that brings rows of float16 to 8 bits: cost/ tells it from others that move as much.
#pragma once

#include "memcalc/symbolic/trace.h"

namespace memcalc {

inline constexpr Operator kVectorQuantize{"bitsandbytes::int8_vectorwise_quant"};

}  // namespace memcalc
