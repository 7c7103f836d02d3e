// Models whose mixers run token by token, here as in Python (Mamba's and Jamba's slow_forward).
#pragma once

#include <cstdint>

namespace memcalc {

/// Their default_length(): a longer sequence takes long to answer.
inline constexpr std::int64_t kLengthTokenByToken = 512;

}  // namespace memcalc
