// EXAONE 4: transformers models/exaone4.
#pragma once

#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// LG's EXAONE 4 (models/exaone4): norms behind each half, query and key normalised head by head, and in a model with
/// a window no positions in the layers without it.
struct Exaone4Spec : RotaryDecoderSpec {
  std::vector<bool> sliding_layers;
};

BuildFamily build_exaone4;

namespace family {
extern const Family kExaone4;
}  // namespace family

}  // namespace memcalc
