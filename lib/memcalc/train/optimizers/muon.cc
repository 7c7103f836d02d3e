// torch/optim/_muon.py for the matrices; it takes nothing else, so what is left has AdamW.
// MIRRORS(torch, "optim/_muon.py", "2.11.0")
#include <algorithm>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/train/optimizers/adam.h"
#include "memcalc/train/optimizers/lists.h"
#include "memcalc/train/optimizers/rules.h"

namespace memcalc {

namespace {

constexpr int kNewtonSchulzSteps = 5;

Tensor product(Tape& tape, const Operator& op, std::int64_t rows, std::int64_t columns, std::int64_t inner) {
  Tensor result = tape.empty({rows, columns}, DType::kBFloat16, op);
  tape.memory.use_cublas(false);
  tape.kernels.product(op, DType::kBFloat16, 1, rows, columns, inner);
  return result;
}

/// _zeropower_via_newtonschulz: a tall matrix is worked on transposed.
Tensor zeropower_via_newtonschulz(const Tensor& grad) {
  Tape& tape = grad.tape();
  const std::int64_t rows = std::min(grad.size(0), grad.size(1)), columns = std::max(grad.size(0), grad.size(1));
  Tensor ortho_grad = grad.dtype() == DType::kBFloat16 ? grad : like(grad, DType::kBFloat16, aten::kToCopy);
  {
    Tensor length = norm(ortho_grad);
    Tensor at_least_eps = scalar(tape, DType::kBFloat16, aten::kClamp);
    drop(length, at_least_eps);
  }
  Tensor gram_matrix, gram_update;
  for (int i = 0; i < kNewtonSchulzSteps; ++i) {
    gram_matrix = product(tape, aten::kMm, rows, rows, columns);
    gram_update = product(tape, aten::kAddmm, rows, rows, rows);
    ortho_grad = product(tape, aten::kAddmm, rows, columns, rows);
  }
  drop(gram_matrix, gram_update);
  return ortho_grad;
}

/// _single_tensor_muon with Nesterov momentum.
void muon_step(OptimizerMemory& memory, const ParameterGroup& group) {
  for (const Parameter* each : group) memory.state(each->tensor.shape(), each->tensor.dtype(), aten::kZerosLike);
  Tensor update;
  for (const Parameter* each : group) {
    update = like(each->tensor, aten::kLerp);
    update = zeropower_via_newtonschulz(update);
  }
}

void step(OptimizerMemory& memory, const ParameterGroup& group) {
  group.front()->tensor.rank() == 2 ? muon_step(memory, group) : adam_foreach_step(memory, group);
}

StateBytes state_bytes(const OptimizedTensor& tensor, Loop /*loop*/) {
  return {.tensors = (tensor.shape.rank == 2 ? 1 : 2) * tensor.bytes()};
}

/// Momentum, Nesterov's sum, the copy to bfloat16, decay and update; the products count for themselves.
double bytes_moved(double itemsize) { return 11 * itemsize + 5 * 2; }

}  // namespace

std::span<const OptimizerRule> muon_rules() {
  static constexpr OptimizerRule kRules[] = {
      {.optimizer = Optimizer::kMuon,
       .title = "Muon with AdamW",
       .source = "torch/optim/_muon.py",
       .states = "one momentum buffer for a matrix, AdamW's two moments for everything else",
       .state_bytes = state_bytes,
       .step = step,
       .flops = 10,
       .bytes_moved = bytes_moved,
       .splits_by_rank = true},
  };
  return kRules;
}

}  // namespace memcalc
