// OLMo 1: transformers models/olmo.
#pragma once

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// OLMo 1 (models/olmo): LLaMA whose norms have no weights.
struct OlmoSpec : RotaryDecoderSpec {};

BuildFamily build_olmo;

namespace family {
extern const Family kOlmo;
}  // namespace family

}  // namespace memcalc
