// What TRL's trainers look at in every step beside the loss, and log (trl 1.16). Each leaves its requests in the trace.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// (sum / count).item() if count > 0 else 0.0
void look_at_mean(const Tensor& sum, const Tensor& count);

/// Python's variables.
struct SumAndCount {
  Tensor sum, count;
};
/// Of the tokens of a mask: each summed, gathered and summed, then look_at_mean().
[[nodiscard]] SumAndCount look_at_entropy(const Tensor& entropy, const Tensor& mask);

/// accelerator.gather(x).mean().item()
void look_at(const Tensor& x);

/// gathered_sum(x).item()
void look_at_sum(const Tensor& x);

/// x[mask.bool()].sum(), where `count` elements of the mask are set.
[[nodiscard]] Tensor sum_of_tokens(const Tensor& x, const Tensor& mask, std::int64_t count);

/// The same of each token's mean logit, of logits [sequences, tokens, words]: x[mask.bool()].mean(-1).sum()
[[nodiscard]] Tensor sum_of_mean_logits(const Tensor& logits, const Tensor& mask, std::int64_t count);

/// Of a sum that is held: gather_for_metrics(total).sum().item()
void look_at_total(const Tensor& total);
/// Of several, whose variables become the numbers.
void look_at_totals(std::vector<Tensor>& totals);

/// x.chunk(2, dim=0)
[[nodiscard]] std::vector<Tensor> halves(const Tensor& x);

}  // namespace memcalc
