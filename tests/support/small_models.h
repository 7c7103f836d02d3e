// Models of a size that a test can count.
#pragma once

#include "memcalc/families/llama/spec.h"
#include "memcalc/spec/model_spec.h"

namespace memcalc::test {

/// LLaMA with 8 heads and a vocabulary of 1000.
[[nodiscard]] inline LlamaSpec llama_256_wide(std::int64_t layers) {
  LlamaSpec spec;
  spec.vocab_size = 1000;
  spec.hidden_size = 256;
  spec.num_hidden_layers = layers;
  spec.num_attention_heads = spec.num_key_value_heads = 8;
  spec.head_dim = 32;
  spec.intermediate_size = 512;
  spec.max_position_embeddings = 4096;
  spec.hidden_act = "silu";
  return spec;
}

}  // namespace memcalc::test
