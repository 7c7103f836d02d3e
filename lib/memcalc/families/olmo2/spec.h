// OLMo 2: transformers models/olmo2.
#pragma once

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// OLMo 2 (models/olmo2): norms after attention and MLP, over all heads of query and key.
struct Olmo2Spec : RotaryDecoderSpec {};

BuildFamily build_olmo2;

namespace family {
extern const Family kOlmo2;
}  // namespace family

}  // namespace memcalc
