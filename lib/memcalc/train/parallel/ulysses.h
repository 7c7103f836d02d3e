// DeepSpeed's Ulysses around a plain step: each rank gets its part of every sequence as UlyssesSPDataLoaderAdapter cuts
// it (deepspeed 0.19.8, deepspeed/runtime/sequence_parallel/ulysses_sp.py), attention exchanges heads for positions
// (models/ulysses_attention.h), the loss is the mean over all ranks' tokens as transformers 5.17 takes it
// (transformers/integrations/deepspeed.py, deepspeed_sp_compute_loss). Gradients and states are shared by all ranks.
// MIRRORS(deepspeed, "runtime/sequence_parallel/ulysses_sp.py", "0.19.8")
// MIRRORS(transformers, "integrations/deepspeed.py", "5.17.0")
#pragma once

#include <memory>
#include <vector>

#include "memcalc/train/parallel/wrapper.h"

namespace memcalc {

class Ulysses : public ParallelWrapper {
 public:
  Ulysses(Tape& tape, const RunSpec& run, std::int64_t rank, std::unique_ptr<ParallelWrapper> engine);

  void wrap(Model& model) override;
  [[nodiscard]] ModelOutput forward(const ModuleForward& module, const Batch& batch, bool sync) override;
  [[nodiscard]] bool updates(const Parameter& parameter) const override { return engine_->updates(parameter); }
  [[nodiscard]] ParameterGroup optimizer_parameters(const Model& model) const override {
    return engine_->optimizer_parameters(model);
  }
  [[nodiscard]] std::vector<HeldRow> held() const override { return engine_->held(); }
  [[nodiscard]] std::vector<HeldRow> held_on_host() const override { return engine_->held_on_host(); }
  [[nodiscard]] Tensor averaged_loss(const Tensor& loss) override { return engine_->averaged_loss(loss); }
  void after_backward(bool last) override { engine_->after_backward(last); }
  [[nodiscard]] bool step() override { return engine_->step(); }
  void after_step() override { engine_->after_step(); }

 private:
  std::unique_ptr<ParallelWrapper> engine_;
};

}  // namespace memcalc
