// One operator on a tape: inputs that need a gradient, the requests of its forward, and its backward as
// torch.autograd.grad(output, inputs, gradient) runs it: outputs and the gradient given stay alive, the inputs'
// gradients are captured, nothing is accumulated.
#pragma once

#include <string>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc::test {

/// specs/gpus/h100-sxm.json, on which the requests were measured.
[[nodiscard]] const DeviceSpec& h100();

/// "+8192 mul; +4 sum; -8192": one event each, an operator's namespace left out.
[[nodiscard]] std::string dump(const Trace& trace, std::size_t first_event = 0);

class TapeBench {
 public:
  explicit TapeBench(const DeviceSpec& device = h100(), const Behaviors& behaviors = {}) : tape(device, behaviors) {}

  /// Takes the workspaces of both threads, so that they are no part of what is measured.
  void warm_up();
  /// A row-major tensor that a caller holds to the end. With a gradient, backward() captures what arrives for it.
  [[nodiscard]] Tensor input(const Shape& shape, DType dtype = DType::kFloat32, bool needs_gradient = true);
  [[nodiscard]] Tensor strided_input(const Shape& shape, const Shape& strides, DType dtype = DType::kFloat32,
                                     bool needs_gradient = true);
  /// What comes from here on is in requests() and events().
  void start() { first_event_ = tape.memory.trace.events.size(); }
  /// Bytes, negative for a free.
  [[nodiscard]] std::vector<Bytes> requests() const;
  [[nodiscard]] std::string events() const { return dump(tape.memory.trace, first_event_); }
  /// What autograd.grad requests and frees, the gradient of `output` not counted: it has the output's layout, or
  /// `gradient` is given.
  void backward(const Tensor& output, Tensor gradient = {});

  Tape tape;
  std::vector<Tensor> gradients;  // captured, in the order of the inputs

 private:
  std::size_t first_event_ = 0;
  std::vector<Tensor> held_;  // the caller's: inputs, and gradients that backward() started from
  Tensor source_;             // what the inputs are made from: it needs a gradient but has nowhere to put it
};

}  // namespace memcalc::test
