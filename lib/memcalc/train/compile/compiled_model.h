// torch.compile(model) in a training loop: one graph of the whole forward pass.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/train/compile/program.h"

namespace memcalc::compile {

class CompiledModel {
 public:
  using Forward = std::function<ModelOutput()>;

  /// Runs `forward`, which calls the model on a batch, once without leaving events behind.
  CompiledModel(Tape& tape, Autocast autocast, const Forward& forward);

  /// One call of the compiled model: its loss has the compiled backward as its history.
  [[nodiscard]] Tensor forward() { return std::move(call(tape_, program_, parameters_, {}).read.front()); }

 private:
  Tape& tape_;
  Program program_;
  std::vector<TensorImpl*> parameters_;
};

}  // namespace memcalc::compile
