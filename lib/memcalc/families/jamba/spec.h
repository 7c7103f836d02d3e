// Jamba: transformers models/jamba.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/token_by_token.h"

namespace memcalc {

/// Jamba (models/jamba): Mamba's mixers with three norms more in most layers, attention without positions in the
/// others, and experts behind every second one.
struct JambaSpec : RotaryDecoderSpec {
  ExpertsSpec experts;
  std::vector<bool> linear_layers, dense_layers;  // one for each layer
  std::int64_t mixer_width = 0;
  std::int64_t state_size = 0;
  std::int64_t conv_kernel = 0;
  std::int64_t time_step_rank = 0;
  bool conv_bias = true;
  bool projection_bias = false;

  [[nodiscard]] static std::int64_t default_length() { return kLengthTokenByToken; }
};

BuildFamily build_jamba;

namespace family {
extern const Family kJamba;
}  // namespace family

}  // namespace memcalc
