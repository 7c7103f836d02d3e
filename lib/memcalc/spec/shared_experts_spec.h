// Decoders of which a token takes some experts and, beside them, an MLP that every token takes: DeepSeek's, GLM-4.5's,
// dots.llm1's.
#pragma once

#include <cstdint>

#include "memcalc/spec/decoder_spec.h"

namespace memcalc {

struct SharedExpertsSpec : RotaryDecoderSpec {
  ExpertsSpec experts;
  std::int64_t n_shared_experts = 0;
  std::int64_t first_k_dense_replace = 0;  // so many layers have an MLP instead
  std::int64_t n_group = 0;                // the experts' groups, where the router first chooses among them; else 0
  std::int64_t topk_group = 0;
};

}  // namespace memcalc
