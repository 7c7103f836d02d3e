// OptimizerRule: what one optimizer does to memory. One file here mirrors one file of a framework; rules.cc lists them
// all. To add one, copy the nearest neighbour.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/models/module.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// The parameters of one param_group, in order.
using ParameterGroup = std::vector<const Parameter*>;

struct OptimizerRule;

/// What a rule's functions see of the optimizer that they run for. Its tensors live as long as the optimizer.
class OptimizerMemory {
 public:
  OptimizerMemory(Tape& tape, Loop loop) : tape(tape), loop(loop) {}

  /// A state on the card. The first step makes it; a later one, which must ask for the same states in the same order,
  /// gets it back.
  Tensor state(const Shape& shape, DType dtype, const Operator& op);
  /// A state that all parameters share, made where it is asked for first; `index` tells several apart.
  void shared_state(int index, const Shape& shape, DType dtype, const Operator& op);
  /// A state in managed memory (cudaMallocManaged), which PyTorch's allocator does not see.
  void managed_state(Bytes bytes);
  /// A variable that every step replaces by a new tensor: the one before dies when it is assigned. In order, one for
  /// each call in a step.
  Tensor& replaced_state();

  void begin_step() { next_state_ = next_replaced_ = 0; }
  void end_step() {
    for (Tensor& variable : step_variables) variable.reset();
    first_step = false;
  }
  void reserve_replaced(std::size_t count) { replaced_.resize(count); }
  template <typename Visit>
  void visit_replaced(Visit visit) {
    for (Tensor& variable : replaced_) visit(variable);
  }

  Tape& tape;
  const Loop loop;
  bool first_step = true;
  /// Variables of a step() that goes through all groups itself: they die at its end, in this order.
  std::array<Tensor, 4> step_variables;

 private:
  std::vector<Tensor> states_;
  std::array<Tensor, 2> shared_;
  std::vector<Tensor> replaced_;
  std::size_t next_state_ = 0;
  std::size_t next_replaced_ = 0;
};

/// A parameter as the closed form sees it.
struct OptimizedTensor {
  Shape shape;
  DType dtype = DType::kFloat32;
  bool is_embedding = false;

  [[nodiscard]] Bytes bytes() const { return checked_multiply(shape.elements(), size_of(dtype)); }
};

/// What an optimizer holds between two steps, in closed form: the accounting view, which a test compares with what
/// the rule's functions request.
struct StateBytes {
  Bytes tensors = 0;  // of a parameter's size or of its rows and columns
  Bytes scalars = 0;  // beside them, on the card
  Bytes managed = 0;  // in managed memory, outside PyTorch's allocator
  Bytes tables = 0;   // the same ones for all tensors

  void add(const StateBytes& other);
};

using StepFunction = void (*)(OptimizerMemory& memory, const ParameterGroup& group);

struct OptimizerRule {
  Optimizer optimizer = Optimizer::kAdamWForeach;
  const char* title = "";             // for people: "AdamW (foreach)"
  const char* source = "";            // the file that it mirrors
  const char* states = "";            // for people: "two moments (exp_avg, exp_avg_sq) in the weight's dtype"
  const char* scalars = "scalars";    // for people: what StateBytes::scalars are
  const char* tables = "state maps";  // for people: what StateBytes::tables are, and in a few words why
  const char* tables_note = "the numbers that a byte stands for, 1 KiB for each state, the same for all tensors";
  /// In closed form, of one tensor.
  StateBytes (*state_bytes)(const OptimizedTensor& tensor, Loop loop) = nullptr;
  /// The constructor, for each group; null: it makes nothing.
  StepFunction construct = nullptr;
  /// What accelerate's wrapper of the optimizer does with states that exist before the first step; null: there are
  /// none.
  StepFunction move_to_device = nullptr;
  /// step(), for each group, of which only the parameters with a gradient are given.
  StepFunction step = nullptr;
  double flops = 0;                                  // per parameter, without products of matrices
  double (*bytes_moved)(double itemsize) = nullptr;  // per parameter of `itemsize` bytes
  int operators = 0;  // kernels for each parameter, one after the other; 0: foreach or fused, over all at once
  /// The kernels of one parameter, where they are not one list of all. Null: they are.
  void (*record_kernels)(const OptimizerRule& rule, const Parameter& parameter, Loop loop) = nullptr;
  bool takes_loss_scale = false;  // divides by GradScaler's scale itself
  bool splits_by_rank = false;    // matrices in one optimizer, everything else in another
  bool replaces_state = false;    // one replaced_state() a parameter
  bool is_measured = true;        // its requests were compared with recorded ones
};

/// Of all the files here.
[[nodiscard]] const OptimizerRule& rule_of(Optimizer optimizer);

}  // namespace memcalc
