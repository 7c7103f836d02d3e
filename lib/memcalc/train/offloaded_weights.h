// accelerate's cpu_offload(model): the weights of a model that infers stay on the host, and a module that holds
// parameters itself has them on the card while it runs (accelerate 1.15: big_modeling.py, hooks.py AlignDevicesHook).
// MIRRORS(accelerate, "big_modeling.py", "1.15.0")
// MIRRORS(accelerate, "hooks.py", "1.15.0")
#pragma once

#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/module_hooks.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/step.h"

namespace memcalc {

class OffloadedWeights : public ModuleHooks {
 public:
  /// Pre: the model was built on the meta device. Its buffers get their storage; hooks stand until this dies.
  OffloadedWeights(Tape& tape, const Model& model);
  ~OffloadedWeights() override;
  OffloadedWeights(const OffloadedWeights&) = delete;
  OffloadedWeights& operator=(const OffloadedWeights&) = delete;

  [[nodiscard]] Tensor before_module(const void* module, std::span<const Tensor* const> parameters,
                                     const Tensor& input) override;
  void after_module(const void* module, const Tensor& output) override;
  [[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) override;

  /// Once the model ran. Throws Error(kUnsupported) where no hooked module had a parameter.
  void check_every_parameter_is_hooked() const;
  /// What lies on the card between modules, and on the host.
  [[nodiscard]] std::vector<HeldRow> held() const;
  [[nodiscard]] std::vector<HeldRow> held_on_host() const;

 private:
  Tape& tape_;
  const Model& model_;
  std::vector<std::pair<const void*, Tensor>> loaded_;  // of the modules that run, one inside another
  // A 16-bit copy in autocast's cache refers to the parameter that it was made of, so both stay until the region ends,
  // and every call adds its own.
  std::vector<Tensor> kept_by_autocast_;
  std::unordered_set<const TensorImpl*> seen_;
};

}  // namespace memcalc
