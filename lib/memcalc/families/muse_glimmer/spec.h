// Muse Glimmer's text model: transformers models/muse_glimmer.
#pragma once

#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Muse Glimmer's text model (models/muse_glimmer): a norm before and behind each half, gated attention, query and key
/// normalised without weights; what sees everything has no positions.
struct MuseGlimmerSpec : RotaryDecoderSpec {
  std::vector<bool> sliding_layers, rotating_layers;  // one for each layer
};

BuildFamily build_muse_glimmer_text;

namespace family {
extern const Family kMuseGlimmerText;
}  // namespace family

}  // namespace memcalc
