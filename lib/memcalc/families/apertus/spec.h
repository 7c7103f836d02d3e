// Apertus: transformers models/apertus.
#pragma once

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Apertus (models/apertus): query and key are normalised head by head, an MLP without a gate. hidden_act is empty
/// where it is xIELU, which has parameters of its own.
struct ApertusSpec : RotaryDecoderSpec {};

BuildFamily build_apertus;

namespace family {
extern const Family kApertus;
}  // namespace family

}  // namespace memcalc
