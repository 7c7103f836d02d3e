#include "memcalc/train/gather.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kAllGather{"c10d::_allgather_base_"};

Tensor summed(const Tensor& x) { return is_floating(x.dtype()) ? sum_all(x) : no_grad::sum(x); }

}  // namespace

// _gpu_gather_one
Tensor gathered(const Tensor& x) {
  Tape& tape = x.tape();
  if (tape.processes == 1) return x;
  const NoGrad no_grad(tape.modes);
  const Tensor sent = x.rank() == 0 ? view(no_grad::clone(x), {1}) : contiguous(x);
  const Tensor output = tape.empty({checked_multiply(tape.processes, sent.elements())}, sent.dtype(), aten::kEmpty);
  tape.kernels.collective(kAllGather, Collective::kAllGather, sent.dtype(), output.bytes(), tape.processes);
  Shape shape = sent.shape();
  shape[0] *= tape.processes;
  return view(output, shape);
}

Tensor gathered_sum(const Tensor& x) {
  const NoGrad no_grad(x.tape().modes);
  const Tensor all = gathered(summed(x));  // the sum is an argument, which dies here
  return summed(all);
}

void compare_sizes(const Tensor& x) {
  Tape& tape = x.tape();
  if (tape.processes == 1 || x.rank() < 2) return;
  const Tensor size = no_grad::from_list(tape, {1, x.rank()});
  gathered(size).reset();  // .cpu()
  read_on_host(tape, aten::kToCopy);
}

}  // namespace memcalc
