// Mixtral: transformers models/mixtral.
#pragma once

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Mixtral (models/mixtral): LLaMA with experts in every layer.
struct MixtralSpec : RotaryDecoderSpec {
  ExpertsSpec experts;
};

BuildFamily build_mixtral;
void mixtral_to_megatron(const Architecture& architecture, MegatronConfig& config);

namespace family {
extern const Family kMixtral;
}  // namespace family

}  // namespace memcalc
