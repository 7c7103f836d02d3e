// torch/optim/_adafactor.py, whose default is the loop over parameters.
// MIRRORS(torch, "optim/_adafactor.py", "2.11.0")
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/train/optimizers/lists.h"
#include "memcalc/train/optimizers/rules.h"

namespace memcalc {

namespace {

bool is_factored(const Shape& shape) { return shape.rank > 1; }

void init_group(OptimizerMemory& memory, const ParameterGroup& group, std::vector<Tensor>& row_vars) {
  for (const Parameter* each : group) {
    const Tensor& grad = each->tensor;
    if (is_factored(grad.shape())) {
      row_vars.push_back(memory.state(reduced(grad.shape(), -1), grad.dtype(), aten::kNewZeros));
      memory.state(reduced(grad.shape(), -2), grad.dtype(), aten::kNewZeros);
    } else {
      row_vars.emplace_back();
      memory.state(grad.shape(), grad.dtype(), aten::kZerosLike);
    }
  }
}

/// row_var @ col_var
Tensor outer_product(const Tensor& grad) {
  Tape& tape = grad.tape();
  Tensor result = tape.empty(grad.shape(), grad.dtype(), aten::kMm);
  tape.memory.use_cublas(false);
  const std::int64_t rows = grad.size(-2), columns = grad.size(-1);
  if (grad.elements() == 0) return result;  // a rank that FSDP2 left no row of a small matrix
  tape.kernels.product(aten::kMm, grad.dtype(), grad.elements() / (rows * columns), rows, columns, 1);
  return result;
}

/// _single_tensor_adafactor; what is not assigned dies in the line that made it.
void step(OptimizerMemory& memory, const ParameterGroup& group) {
  std::vector<Tensor> row_vars;
  init_group(memory, group, row_vars);
  Tensor row_mean, col_mean, var_estimate, grad_squared, update;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const Tensor& param = group[i]->tensor;
    const Tensor grad = param.impl()->grad;
    norm(param).reset();
    if (is_factored(grad.shape())) {
      row_mean = norm(grad, -1);
      col_mean = norm(grad, -2);
      var_estimate = outer_product(grad);
      mean(row_vars[i], -2).reset();
    } else {
      grad_squared = like(grad, aten::kMul);
      var_estimate = like(grad, aten::kClone);
    }
    update = var_estimate;
    norm(update).reset();
  }
  drop(row_mean, col_mean, var_estimate, grad_squared, update);
}

StateBytes state_bytes(const OptimizedTensor& tensor, Loop /*loop*/) {
  if (!is_factored(tensor.shape)) return {.tensors = tensor.bytes()};
  const std::int64_t kept = reduced(tensor.shape, -1).elements() + reduced(tensor.shape, -2).elements();
  return {.tensors = checked_multiply(kept, size_of(tensor.dtype))};
}

double bytes_moved(double itemsize) { return 19 * itemsize; }

}  // namespace

std::span<const OptimizerRule> torch_adafactor_rules() {
  static constexpr OptimizerRule kRules[] = {
      {.optimizer = Optimizer::kAdafactorTorch,
       .title = "torch's Adafactor",
       .source = "torch/optim/_adafactor.py",
       .states = "of a matrix one number a row and a column, of a vector one an element, in the weight's dtype",
       .state_bytes = state_bytes,
       .step = step,
       .flops = 14,
       .bytes_moved = bytes_moved},
  };
  return kRules;
}

}  // namespace memcalc
