#include "memcalc/models/ulysses_attention.h"

#include <utility>
#include <vector>

#include "memcalc/symbolic/ops/all_to_all.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// dist.all_gather of every rank's position_ids, and one tensor of all of them; the list lives as long.
struct GatheredPositions {
  std::vector<Tensor> of_ranks;
  Tensor all;

  GatheredPositions(Tape& tape, std::int64_t batch, std::int64_t positions, std::int64_t ranks)
      : of_ranks(all_gather(tape, {batch, positions}, DType::kInt64, ranks)), all(concatenate(of_ranks, 1)) {}
  void drop_list() {
    for (Tensor& each : of_ranks) each.reset();
  }
};

/// _combine_local_sequences of one: [S / ranks, B, H, D] -> [S, B, H / ranks, D]. Where there are fewer heads than
/// ranks, each is repeated.
Tensor combine_sequence(Tensor input, std::int64_t ranks) {
  const std::int64_t positions = input.size(0), batch = input.size(1), head_dim = input.size(3);
  const std::int64_t times = ranks / input.size(2);
  if (times > 1) {  // repeat_interleave(times, dim=2)
    const std::int64_t heads = input.size(2);
    input = reshape(expand(unsqueeze(input, 3), {positions, batch, heads, times, head_dim}),
                    {positions, batch, heads * times, head_dim});
  }
  const std::int64_t local_heads = input.size(2) / ranks;
  input = reshape(std::move(input), {positions, batch, ranks, local_heads, head_dim});
  input = contiguous(permute(std::move(input), {2, 0, 1, 3, 4}));
  Tensor output = dim_zero_all_to_all(input, ranks);
  return contiguous(reshape(std::move(output), {ranks * positions, batch, local_heads, head_dim}));
}

/// _partition_global_sequence: [S, B, w] -> [S / ranks, B, w * ranks]
Tensor partition_sequence(const Tensor& whole, std::int64_t ranks) {
  const std::int64_t positions = whole.size(0) / ranks;
  const Tensor input = contiguous(reshape(whole, {ranks, positions, whole.size(1), whole.size(2)}));
  Tensor output = dim_zero_all_to_all(input, ranks);
  output = permute(std::move(output), {1, 2, 0, 3});
  return contiguous(reshape(std::move(output), {positions, whole.size(1), -1}));
}

}  // namespace

AttentionResult ulysses_attention(const Tensor& query, const Tensor& key, const Tensor& value, std::int64_t ranks,
                                  const AttentionFunction& attend) {
  GatheredPositions positions(query.tape(), query.size(0), query.size(2), ranks);
  Tensor query_layer = combine_sequence(permute(query, {2, 0, 1, 3}), ranks);
  Tensor key_layer = combine_sequence(permute(key, {2, 0, 1, 3}), ranks);
  Tensor value_layer = combine_sequence(permute(value, {2, 0, 1, 3}), ranks);
  query_layer = contiguous(permute(std::move(query_layer), {1, 2, 0, 3}));
  key_layer = contiguous(permute(std::move(key_layer), {1, 2, 0, 3}));
  value_layer = contiguous(permute(std::move(value_layer), {1, 2, 0, 3}));
  AttentionResult result = attend(query_layer, key_layer, value_layer);
  Tensor context_layer = permute(std::move(result.output), {1, 0, 2, 3});
  context_layer = reshape(std::move(context_layer), {context_layer.size(0), context_layer.size(1), -1});
  Tensor output = permute(partition_sequence(context_layer, ranks), {1, 0, 2});
  positions.all.reset();
  positions.drop_list();
  drop(query_layer, key_layer, value_layer, context_layer);
  return {std::move(output), std::move(result.weights)};
}

}  // namespace memcalc
