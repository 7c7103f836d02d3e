#include "memcalc/train/trl/metrics.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
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

void look_at(const Tensor& x) {
  mean(gathered(x), 1, false).reset();
  read_on_host(x);
}

void look_at_sum(const Tensor& x) {
  gathered_sum(x).reset();
  read_on_host(x);
}

std::vector<Tensor> halves(const Tensor& x) { return split(x, 0, 2); }

}  // namespace memcalc
