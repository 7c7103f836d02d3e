// Mamba: transformers models/mamba.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/spec/family.h"
#include "memcalc/spec/token_by_token.h"

namespace memcalc {

/// Mamba (models/mamba): mixers alone, whose state space is run through token by token.
struct MambaSpec {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t intermediate_size = 0;  // of the mixer
  std::int64_t state_size = 0;
  std::int64_t conv_kernel = 0;
  std::int64_t time_step_rank = 0;
  std::string hidden_act;
  bool use_bias = false;
  bool use_conv_bias = true;
  bool residual_in_fp32 = true;
  bool tie_word_embeddings = true;

  [[nodiscard]] static std::int64_t default_length() { return kLengthTokenByToken; }
};

BuildFamily build_mamba;

namespace family {
extern const Family kMamba;
}  // namespace family

}  // namespace memcalc
