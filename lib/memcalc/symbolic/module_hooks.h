// ModuleHooks: what a wrapper of the model does around each module that holds parameters itself (nn.Linear, a norm, an
// embedding), as forward hooks and hooks on its inputs and outputs do: DeepSpeed's ZeRO-3, FSDP2's units of single
// modules. Modules without parameters of their own have none. Modes::module_hooks says where they are.
#pragma once

#include <span>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

class ModuleHooks {
 public:
  virtual ~ModuleHooks() = default;
  /// `module`: its identity. May replace the input, as a forward pre-hook can; one that is given no tensor has none.
  [[nodiscard]] virtual Tensor before_module(const void* module, std::span<const Tensor* const> parameters,
                                             const Tensor& input) = 0;
  virtual void after_module(const void* module, const Tensor& output) = 0;
  /// Whether the modules of an adapter have hooks, too: peft's layer around the original one, lora_dropout, lora_A and
  /// lora_B. Of the first two, which hold no parameters, before_module() gets none.
  [[nodiscard]] virtual bool hooks_adapters() const { return false; }
  /// Whether parameters that a module uses of others are its own, too, to the hooks around it (DeepSpeed's external
  /// parameters).
  [[nodiscard]] virtual bool hooks_used_parameters() const { return false; }
  /// What stands in the place of torch.nn.functional.linear.
  [[nodiscard]] virtual Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) = 0;
  /// Around code that reads a parameter without a call of its module, so that the hooks above do not run: TRL's fused
  /// head. The first gives what is read.
  [[nodiscard]] virtual Tensor before_direct_read(const Tensor& parameter) { return parameter; }
  virtual void after_direct_read(const Tensor& /*parameter*/) {}
};

/// A parameter that is read so, as long as this lives. `hooks`: null where there are none. `parameter` may be
/// undefined.
class DirectRead {
 public:
  DirectRead(ModuleHooks* hooks, const Tensor& parameter) : hooks_(hooks), parameter_(parameter) {
    const bool asks = hooks_ != nullptr && parameter_.defined();
    tensor_ = asks ? hooks_->before_direct_read(parameter_) : parameter_;
  }
  ~DirectRead() {
    tensor_.reset();
    if (hooks_ != nullptr && parameter_.defined()) hooks_->after_direct_read(parameter_);
  }
  DirectRead(const DirectRead&) = delete;
  DirectRead& operator=(const DirectRead&) = delete;
  [[nodiscard]] const Tensor& tensor() const { return tensor_; }

 private:
  ModuleHooks* hooks_;
  Tensor parameter_, tensor_;
};

}  // namespace memcalc
