// bitsandbytes' kernel that brings rows of float16 to 8 bits, which cost/ knows from others that read and write as much.
#pragma once

#include "memcalc/symbolic/trace.h"

namespace memcalc {

inline constexpr Operator kVectorQuantize{"bitsandbytes::int8_vectorwise_quant"};

}  // namespace memcalc
