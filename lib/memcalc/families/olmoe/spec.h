// OLMoE: transformers models/olmoe.
#pragma once

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// OLMoE (models/olmoe): experts in every layer, query and key are normalised over all heads at once.
struct OlmoeSpec : RotaryDecoderSpec {
  ExpertsSpec experts;
  bool norm_topk_prob = false;
};

BuildFamily build_olmoe;

namespace family {
extern const Family kOlmoe;
}  // namespace family

}  // namespace memcalc
