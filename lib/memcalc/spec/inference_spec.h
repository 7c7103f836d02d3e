// How a model is run without training (--infer). The option names of the command line are in comments.
#pragma once

#include <cstdint>
#include <optional>

#include "memcalc/base/dtype.h"
#include "memcalc/spec/sampling.h"

namespace memcalc {

struct Inference {
  std::int64_t new_tokens = 0;                 // tokens that generate() adds; 0: one forward pass; --new-tokens
  std::int64_t beams = 1;                      // num_beams of generate(); --beams
  std::int64_t return_sequences = 1;           // num_return_sequences, answers to each prompt; --num-return-sequences
  std::optional<Sampling> sampling;            // absent: the likeliest token, or beams; --sampling
  std::optional<DType> key_value_cache_dtype;  // absent: the type of the activations; --kv-cache-dtype
};

}  // namespace memcalc
