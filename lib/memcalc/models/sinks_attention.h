// eager_attention_forward of gpt-oss, which DeepSeek-V4's repeats.
// MIRRORS(transformers, "models/gpt_oss/modeling_gpt_oss.py", "5.17.0")
#pragma once

#include <cstdint>
#include <utility>

#include "memcalc/models/attention.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

/// A learned score for each head takes part in the softmax and is dropped after it. `sinks`: [heads].
[[nodiscard]] inline AttentionResult attention_with_sinks(const Tensor& query, const Tensor& key, const Tensor& value,
                                                          const Tensor& mask, const Tensor& sinks,
                                                          double dropout_probability) {
  const std::int64_t groups = query.size(1) / key.size(1);
  Tensor key_states = repeat_kv(key, groups);
  Tensor value_states = repeat_kv(value, groups);
  Tensor attn_weights = multiply_scalar(matmul(query, transpose(key_states, 2, 3)));
  if (mask.defined()) attn_weights = attn_weights + mask;
  const Tensor expanded_sinks = expand(reshape(sinks, {1, -1, 1, 1}), {query.size(0), -1, query.size(2), -1});
  Tensor combined_logits = cat(attn_weights, expanded_sinks, -1);
  Tensor largest = max_along(combined_logits, combined_logits.rank() - 1, true).values;
  combined_logits = combined_logits - std::move(largest);
  Tensor probs = softmax(combined_logits, combined_logits.dtype());
  Tensor scores = slice(probs, -1, 0, key.size(2));
  attn_weights = to_dtype(dropout(scores, dropout_probability), value_states.dtype());
  Tensor attn_output = matmul(attn_weights, value_states);
  attn_output = contiguous(transpose(attn_output, 1, 2));
  drop(key_states, value_states, combined_logits, probs, scores);
  return {std::move(attn_output), std::move(attn_weights)};
}

}  // namespace memcalc
