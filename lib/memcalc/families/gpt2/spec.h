// GPT-2: transformers models/gpt2.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/spec/family.h"

namespace memcalc {

/// GPT-2 (transformers models/gpt2): pre-norm decoder with a fused, transposed QKV projection (Conv1D).
struct Gpt2Spec {
  std::int64_t vocab_size = 0;
  std::int64_t n_embd = 0;
  std::int64_t n_layer = 0;
  std::int64_t n_head = 0;
  std::int64_t n_positions = 0;
  std::int64_t n_inner = 0;  // 4 * n_embd where config.json has null
  std::int64_t num_labels = 2;
  std::string activation_function;  // "gelu_new", …
  double resid_pdrop = 0;
  double embd_pdrop = 0;
  double attn_pdrop = 0;
  bool tie_word_embeddings = true;

  [[nodiscard]] std::int64_t position_limit() const { return n_positions; }
  [[nodiscard]] std::int64_t cached_numbers() const { return 2 * n_embd; }
};

BuildFamily build_gpt2;
void gpt2_to_megatron(const Architecture& architecture, MegatronConfig& config);

namespace family {

/// GPT-2's names of sizes, which GPT-J has, too.
inline constexpr SizeKeysOfFamily kGpt2Keys = {{{"n_layer", ""},
                                                {"n_embd", ""},
                                                {"n_head", ""},
                                                {},
                                                {},
                                                {"n_inner", ""},
                                                {"vocab_size", ""},
                                                {"n_positions", ""},
                                                {"tie_word_embeddings", ""}}};

extern const Family kGpt2;

}  // namespace family

}  // namespace memcalc
