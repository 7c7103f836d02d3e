// torch.distributed.tensor.experimental.context_parallel around the model's call (PyTorch 2.11): each rank gets a part
// of every sequence, attention becomes a ring. Beside it, where the run asks for it, whatever shares or shards
// parameters. Covered by tests/measured/parallel_rows_test.cc.
#pragma once

#include <memory>
#include <vector>

#include "memcalc/train/parallel/wrapper.h"

namespace memcalc {

class ContextParallelism : public ParallelWrapper {
 public:
  /// `inner` may be null: then no rank hears of the others' gradients.
  ContextParallelism(Tape& tape, const RunSpec& run, std::int64_t rank, std::unique_ptr<ParallelWrapper> inner);

  void wrap(Model& model) override;
  [[nodiscard]] ModelOutput forward(const ModuleForward& module, const Batch& batch, bool sync) override;
  [[nodiscard]] bool updates(const Parameter& parameter) const override;
  [[nodiscard]] ParameterGroup optimizer_parameters(const Model& model) const override;
  void after_step() override;
  [[nodiscard]] std::vector<HeldRow> held_on_host() const override {
    return inner_ ? inner_->held_on_host() : std::vector<HeldRow>{};
  }

  /// with context_parallel(mesh, buffers=…): this rank's part of the batch, and the end of the block.
  [[nodiscard]] Batch enter(const Batch& batch);
  void leave();

 private:
  std::unique_ptr<ParallelWrapper> inner_;
  std::vector<Tensor> held_;  // by the context, until it is left
};

}  // namespace memcalc
