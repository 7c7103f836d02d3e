// A module that holds parameters itself, with what a wrapper does around it (symbolic/module_hooks.h).
#pragma once

#include <initializer_list>
#include <span>

#include "memcalc/symbolic/module_hooks.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// forward(x) of a module, whose identity is `module`, between hooks. `parameters`: those that it holds itself.
template <typename Forward>
[[nodiscard]] Tensor between_hooks(ModuleHooks& hooks, const void* module,
                                   std::initializer_list<const Tensor*> parameters, const Tensor& x,
                                   const Forward& forward) {
  Tensor output = forward(hooks.before_module(module, std::span(parameters.begin(), parameters.size()), x));
  hooks.after_module(module, output);
  return output;
}

/// module(x), hooked where something hooks modules.
template <typename Module, typename Forward>
[[nodiscard]] Tensor hooked_module(const Module& module, std::initializer_list<const Tensor*> parameters,
                                   const Tensor& x, const Forward& forward) {
  ModuleHooks* hooks = module.weight.tape().modes.module_hooks;
  return hooks == nullptr ? forward(x) : between_hooks(*hooks, &module, parameters, x, forward);
}

}  // namespace memcalc
