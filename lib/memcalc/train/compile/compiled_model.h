// torch.compile(model) in a training loop: the forward pass is captured once, its joint graph is cut in two, and each
// call of forward or backward asks for the memory that inductor's code would. docs/compile.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/compile/graph.h"
#include "memcalc/train/compile/schedule.h"

namespace memcalc::compile {

class CompiledModel {
 public:
  using Forward = std::function<ModelOutput()>;

  /// Where autocast begins: around the compiled module, or in it, as accelerate wraps its forward. Derivatives are
  /// traced under what surrounds the module.
  enum class Autocast : std::uint8_t { kAround, kInside };

  /// Runs `forward`, which calls the model on a batch, once without leaving events behind.
  CompiledModel(Tape& tape, Autocast autocast, const Forward& forward);

  /// One call of the compiled model: its loss has the compiled backward as its history.
  [[nodiscard]] Tensor forward();

 private:
  /// What a call keeps for its backward: a tensor for each node that was saved. Lives as long as the autograd node.
  struct Saved {
    const CompiledModel* model;
    std::vector<Tensor> buffers;  // by node
  };

  void capture(Autocast autocast, const Forward& forward);
  static void run_backward(BackwardCall& call);
  void launch(std::vector<Tensor>& buffers, const Launch& launch) const;
  void run(std::vector<Tensor>& buffers, const Schedule& schedule) const;
  [[nodiscard]] Tensor make(NodeIndex i) const;
  void count_kernels(const KernelList& kernels) const;

  Tape& tape_;
  JointGraph graph_;
  std::vector<NodeIndex> saved_;
  Schedule forward_, backward_;
  KernelList forward_kernels_, backward_kernels_;
  Shape loss_shape_;
  DType loss_dtype_ = DType::kFloat32;
};

}  // namespace memcalc::compile
