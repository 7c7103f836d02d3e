// transformers 5.17: integrations/finegrained_fp8.py, fp8_grouped_mm_experts_forward and
// fp8_batched_mm_experts_forward.
// MIRRORS(transformers, "integrations/finegrained_fp8.py", "5.17.0")
#include "memcalc/models/packed_experts.h"

#include "memcalc/models/experts.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/block_fp8.h"
#include "memcalc/symbolic/ops/grouped_mm.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/put.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {}  // namespace

Tensor Experts::forward_grouped_fp8(const Tensor& hidden_states, const Tensor& top_k_index,
                                    const Tensor& top_k_weights) const {
  SortedTokens tokens(hidden_states, top_k_index, top_k_weights, num_experts);
  auto& [token_idx, sample_weights, expert_ids, sorted, expert_ids_g, perm, inv_perm, selected_hidden_states_g,
         sample_weights_g, histc_input, tokens_per_expert, offsets, sentinel_mask] = tokens;
  Tensor proj_out, weighted_out, final_hidden_states;
  const Locals locals(sample_weights, expert_ids, expert_ids_g, perm, selected_hidden_states_g, sample_weights_g,
                      histc_input, tokens_per_expert, offsets, sentinel_mask, proj_out, weighted_out, inv_perm,
                      final_hidden_states);
  const std::int64_t num_top_k = top_k_index.size(-1);
  proj_out = block_fp8_grouped_mm(selected_hidden_states_g, packed->gate_up_proj, tokens_per_expert);
  proj_out = activated(proj_out);
  proj_out = block_fp8_grouped_mm(proj_out, packed->down_proj, tokens_per_expert);
  weighted_out = proj_out * unsqueeze(to_dtype(sample_weights_g, proj_out.dtype()), -1);
  if (sentinel_mask.defined()) weighted_out = masked_fill_in_place(weighted_out, sentinel_mask);
  if (!inv_perm.defined()) inv_perm = inverse_permutation(perm);
  weighted_out = index_rows(weighted_out, inv_perm);
  final_hidden_states =
      sum_over(view(weighted_out, {hidden_states.size(0), num_top_k, hidden_states.size(1)}), 1, false);
  return to_dtype(final_hidden_states, hidden_states.dtype());
}

Tensor Experts::forward_batched_fp8(const Tensor& hidden_states, const Tensor& top_k_index,
                                    const Tensor& top_k_weights) const {
  Tensor selected_hidden_states, sample_weights, expert_ids, sentinel_mask, proj_out, weighted_out;
  Tensor final_hidden_states;
  const Locals locals(selected_hidden_states, sample_weights, expert_ids, sentinel_mask, proj_out, weighted_out,
                      final_hidden_states);
  const std::int64_t num_top_k = top_k_index.size(-1);
  selected_hidden_states = no_grad::repeat_interleave(hidden_states, num_top_k);
  sample_weights = reshape(top_k_weights, {-1});
  expert_ids = reshape(top_k_index, {-1});
  sentinel_mask = unsqueeze(pointwise(aten::kGe, {&expert_ids}, 1, DType::kBool), -1);
  proj_out = block_fp8_batched_mm(selected_hidden_states, packed->gate_up_proj);
  proj_out = activated(proj_out);
  proj_out = block_fp8_batched_mm(proj_out, packed->down_proj);
  weighted_out = proj_out * unsqueeze(to_dtype(sample_weights, proj_out.dtype()), -1);
  weighted_out = masked_fill_in_place(weighted_out, sentinel_mask);
  final_hidden_states =
      sum_over(view(weighted_out, {hidden_states.size(0), num_top_k, hidden_states.size(1)}), 1, false);
  return to_dtype(final_hidden_states, hidden_states.dtype());
}

}  // namespace memcalc
