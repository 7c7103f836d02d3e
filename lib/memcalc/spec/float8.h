// Float8 training, as a run and the tape that traces it name it.
#pragma once

#include <cstdint>

namespace memcalc {

/// --float8: torchao's convert_to_float8_training of a decoder's layers, with dynamic scales: one for each tensor; the
/// same, and FSDP2 gathers weights in float8 (enable_fsdp_float8_all_gather); one for each row.
enum class Float8 : std::uint8_t { kNone, kTensorwise, kTensorwiseGather, kRowwise };

}  // namespace memcalc
