// Granite's mixtures of experts: transformers models/granitemoe.
#pragma once

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// IBM's Granite 3 with experts (models/granitemoe): Granite with a mixture in the place of each MLP.
struct GraniteMoeSpec : RotaryDecoderSpec {
  ExpertsSpec experts;
};

BuildFamily build_granitemoe;

namespace family {
extern const Family kGraniteMoe;
}  // namespace family

}  // namespace memcalc
