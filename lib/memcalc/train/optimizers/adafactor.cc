// transformers/optimization.py, class Adafactor, as the Trainer makes it (scale_parameter=False, relative_step=False)
// and with its own defaults.
// MIRRORS(transformers, "optimization.py", "5.17.0")
#include <string_view>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/train/optimizers/lists.h"
#include "memcalc/train/optimizers/rules.h"

namespace memcalc {

namespace {

constexpr const char* kSource = "transformers/optimization.py";
constexpr const char* kStates = "of a matrix one float32 number a row and a column, of a vector one an element";

bool is_factored(const Shape& shape) { return shape.rank >= 2; }

/// `shape` without the dimension `dim`; dim < 0
Shape without(const Shape& shape, int dim) {
  Shape result;
  for (int i = 0; i < shape.rank; ++i) {
    if (i != shape.rank + dim) result.dims[static_cast<std::size_t>(result.rank++)] = shape[i];
  }
  return result;
}

/// _rms: norm(2) / sqrt(numel)
Tensor root_mean_square(const Tensor& tensor) {
  const Tensor total = norm(tensor);
  return scalar(tensor.tape(), DType::kFloat32, aten::kDiv);
}

/// _get_lr with scale_parameter: max(eps, RMS) * step size. A parameter that starts at zero, as transformers' biases
/// do, has an RMS below eps for long; the maximum is then a Python number, and so is the product.
void scale_learning_rate(Tape& tape, const Parameter& parameter, Tensor& lr) {
  tape.memory.scratch(1, aten::kGt);
  if (std::string_view(parameter.name).ends_with("bias")) {
    lr.reset();
  } else {
    lr = scalar(tape, DType::kFloat32, aten::kMul);
  }
}

/// _approx_sq_grad
Tensor approx_sq_grad(const Tensor& row, const Tensor& col, const Tensor& grad) {
  Tensor row_mean = mean(row, -1);
  Tensor r_factor = like(row, aten::kDiv);
  row_mean.reset();
  Tensor c_factor = like(col, aten::kRsqrt);
  Tensor result = like(grad, aten::kMul);
  drop(r_factor, c_factor);
  return result;
}

void step(OptimizerMemory& memory, const ParameterGroup& group, bool relative) {
  Tape& tape = memory.tape;
  auto& [grad, p_data_fp32, lr, update] = memory.step_variables;
  for (const Parameter* each : group) {
    const Shape& shape = each->tensor.shape();
    grad = each->tensor.impl()->grad;
    if (is_half(grad.dtype())) grad = like(grad, DType::kFloat32, aten::kToCopy);
    Tensor row, col;
    if (is_factored(shape)) {
      row = memory.state(without(shape, -1), DType::kFloat32, aten::kToCopy);
      col = memory.state(without(shape, -2), DType::kFloat32, aten::kToCopy);
    } else {
      memory.state(shape, DType::kFloat32, aten::kZerosLike);
    }
    p_data_fp32 = each->tensor;
    if (is_half(p_data_fp32.dtype())) p_data_fp32 = like(p_data_fp32, DType::kFloat32, aten::kToCopy);

    Tensor rms = root_mean_square(p_data_fp32);
    tape.memory.set_category(rms.block(), Category::kOptimizerStates);
    memory.replaced_state() = std::move(rms);
    if (relative) scale_learning_rate(tape, *each, lr);

    Tensor square = like(grad, aten::kPow);
    Tensor above_zero = like(grad, aten::kAdd);
    square.reset();
    update = std::move(above_zero);
    if (is_factored(shape)) {
      mean(update, -1).reset();
      mean(update, -2).reset();
      update = approx_sq_grad(row, col, grad);
    } else {
      update = like(grad, aten::kRsqrt);
    }
    Tensor update_rms = root_mean_square(update);
    Tensor clipped = scalar(tape, DType::kFloat32, aten::kDiv);
    drop(update_rms, clipped);
    like(p_data_fp32, aten::kNeg).reset();
  }
}

void plain_step(OptimizerMemory& memory, const ParameterGroup& group) { step(memory, group, false); }
void relative_step(OptimizerMemory& memory, const ParameterGroup& group) { step(memory, group, true); }

StateBytes state_bytes(const OptimizedTensor& tensor, Loop /*loop*/) {
  const Bytes kept = is_factored(tensor.shape)
                         ? without(tensor.shape, -1).elements() + without(tensor.shape, -2).elements()
                         : tensor.shape.elements();
  return {.tensors = checked_multiply(4, kept), .scalars = 4};
}

/// All passes are over float32; 16-bit gradients and weights are read and the weights written beside that.
double bytes_moved(double itemsize) { return 21 * 4 + (itemsize == 4 ? 0 : 3 * itemsize + 12); }

}  // namespace

std::span<const OptimizerRule> adafactor_rules() {
  static constexpr OptimizerRule kRules[] = {
      {.optimizer = Optimizer::kAdafactor,
       .title = "Adafactor",
       .source = kSource,
       .states = kStates,
       .scalars = "sizes of the weights (RMS)",
       .state_bytes = state_bytes,
       .step = plain_step,
       .flops = 14,
       .bytes_moved = bytes_moved,
       .operators = 22,
       .replaces_state = true},
      {.optimizer = Optimizer::kAdafactorRelative,
       .title = "Adafactor with relative steps",
       .source = kSource,
       .states = kStates,
       .scalars = "sizes of the weights (RMS)",
       .state_bytes = state_bytes,
       .step = relative_step,
       .flops = 14,
       .bytes_moved = bytes_moved,
       .operators = 22,
       .replaces_state = true},
  };
  return kRules;
}

}  // namespace memcalc
