// DeepSeek-V4: transformers models/deepseek_v4.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// What a layer's attention sees beside its window: nothing, or keys that stand for several tokens.
enum class CompressedKeys : std::uint8_t {
  kNone,    // sliding_attention
  kChosen,  // compressed_sparse_attention: those that an indexer chooses
  kAll,     // heavily_compressed_attention
};

/// DeepSeek-V4 (models/deepseek_v4): one key and value for all heads, several residual streams, a mixture in every
/// layer.
struct DeepseekV4Spec : RotaryDecoderSpec {
  ExpertsSpec experts;  // intermediate_size of RotaryDecoderSpec is theirs, too: the shared expert has it
  std::int64_t q_lora_rank = 0;
  std::int64_t rotary_dim = 0;  // of head_dim: the last numbers
  std::int64_t o_groups = 0;
  std::int64_t o_lora_rank = 0;
  std::int64_t index_n_heads = 0;
  std::int64_t index_head_dim = 0;
  std::int64_t index_topk = 0;
  std::int64_t chosen_rate = 0;  // tokens to a compressed key
  std::int64_t all_rate = 0;     // the same in layers that see all of them
  std::int64_t hc_mult = 0;      // residual streams
  std::int64_t hc_sinkhorn_iters = 0;
  std::vector<CompressedKeys> layers;
  std::vector<bool> hashed_layers;  // whose experts a table gives for each token of the vocabulary
  bool root_of_softplus = true;     // the router's scores; else sigmoids
  bool mlp_bias = false;

  /// One key, which is the value, too.
  [[nodiscard]] std::int64_t cached_numbers() const { return head_dim; }
};

BuildFamily build_deepseek_v4;

namespace family {
extern const Family kDeepseekV4;
}  // namespace family

}  // namespace memcalc
