#include "memcalc/train/trl/metrics.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/gather.h"

namespace memcalc {

void look_at_mean(const Tensor& sum, const Tensor& count) {
  Tape& tape = sum.tape();
  no_grad::greater(count).reset();
  read_on_host(tape, aten::kGt);
  no_grad::divide(sum, count).reset();
  read_on_host(tape);
}

SumAndCount look_at_entropy(const Tensor& entropy, const Tensor& mask) {
  SumAndCount result;
  result.sum = sum_all(no_grad::multiply(entropy, mask));
  result.count = no_grad::sum(mask);
  result.sum = sum_all(gathered(result.sum));
  result.count = no_grad::sum(gathered(result.count));
  look_at_mean(result.sum, result.count);
  return result;
}

void look_at(const Tensor& x) {
  mean(gathered(x), 1, false).reset();
  read_on_host(x);
}

void look_at_sum(const Tensor& x) {
  gathered_sum(x).reset();
  read_on_host(x);
}

Tensor sum_of_tokens(const Tensor& x, const Tensor& mask, std::int64_t count) {
  Tensor is_set = no_grad::to(mask, DType::kBool);
  const Tensor chosen = index_by_mask(x, 0, is_set, count);
  is_set.reset();
  return sum_all(chosen);
}

Tensor sum_of_mean_logits(const Tensor& logits, const Tensor& mask, std::int64_t count) {
  Tensor is_set = no_grad::to(mask, DType::kBool);
  Tensor chosen = index_by_mask(logits, 0, is_set, count);
  is_set.reset();
  const Tensor means = mean(chosen, 0b10, false);
  chosen.reset();
  return sum_all(means);
}

void look_at_total(const Tensor& total) {
  const NoGrad no_grad(total.tape().modes);
  const Tensor all = gathered(total);
  (is_floating(all.dtype()) ? sum_all(all) : no_grad::sum(all)).reset();
  read_on_host(total);
}

void look_at_totals(std::vector<Tensor>& totals) {
  for (Tensor& each : totals) {
    look_at_total(each);
    each.reset();  // its name is the number's from then on
  }
}

std::vector<Tensor> halves(const Tensor& x) { return split(x, 0, 2); }

}  // namespace memcalc
