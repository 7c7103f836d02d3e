// OLMo 2 and 3: transformers models/olmo2, models/olmo3.
#pragma once

#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// OLMo 2 (models/olmo2): norms after attention and MLP, over all heads of query and key.
struct Olmo2Spec : RotaryDecoderSpec {
  std::vector<bool> sliding_layers;  // of OLMo 3 (models/olmo3); empty: OLMo 2
};

BuildFamily build_olmo2;

namespace family {
extern const Family kOlmo2, kOlmo3;
}  // namespace family

}  // namespace memcalc
