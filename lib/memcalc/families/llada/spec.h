// LLaDA: the hub's own modeling_llada.py.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/spec/family.h"

namespace memcalc {

/// LLaDA (model_type llada, OLMo's first code in LLaMA's shape): a language model that fills in masked tokens, all of
/// which see each other.
struct LladaSpec {
  std::int64_t vocab_size = 0;  // rows of the embedding: embedding_size
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::string hidden_act;
  double attention_dropout = 0;
  double residual_dropout = 0;
  double embedding_dropout = 0;
  bool qkv_bias = false;
  bool bias = false;  // of every product, and of the norms
  bool rotates_in_float32 = true;
  bool scales_embedding = false;
  bool scales_logits = false;
  bool tie_word_embeddings = true;
};

BuildFamily build_llada;

namespace family {
extern const Family kLlada;
}  // namespace family

}  // namespace memcalc
