// torch.compile(model) in a training loop: one graph of the whole forward pass.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/models/model.h"
#include "memcalc/train/compile/cuda_graphs.h"
#include "memcalc/train/compile/program.h"

namespace memcalc::compile {

/// A tensor of the batch that the model is called with, of which a CUDA graph reads a copy. Whole numbers (tokens,
/// labels) are read by backward, too; others are not but for what forward has made of them.
struct GraphInput {
  Bytes bytes = 0;
  bool is_whole = false;
};

/// Whether the second step compiles the model anew: the first loss of transformers' classifiers of sequences and images
/// (ForSequenceClassificationLoss) writes config.problem_type, of which a guard says that it is None.
[[nodiscard]] bool compiles_again(const RunSpec& run, const Model& model);

class CompiledModel {
 public:
  using Forward = std::function<ModelOutput()>;

  /// Runs `forward`, which calls the model on a batch, once without leaving events behind. `again`: the second
  /// step compiles it anew.
  CompiledModel(Tape& tape, Autocast autocast, bool again, const Forward& forward);

  /// mode="reduce-overhead". Pre: forward() was not called yet.
  void record_graphs(std::vector<GraphInput> batch);

  /// One call of the compiled model: its loss has the compiled backward as its history.
  [[nodiscard]] Tensor forward();

 private:
  Tape& tape_;
  Program program_;
  std::vector<TensorImpl*> parameters_;
  std::optional<CudaGraphs> graphs_;
  std::vector<GraphInput> batch_;
};

}  // namespace memcalc::compile
