// A module that holds parameters itself, with what a wrapper does around it (symbolic/module_hooks.h).
#pragma once

#include <initializer_list>
#include <span>

#include "memcalc/symbolic/module_hooks.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// module(x). `parameters`: those that the module holds itself.
template <typename Module, typename Forward>
[[nodiscard]] Tensor hooked_module(const Module& module, std::initializer_list<const Tensor*> parameters,
                                   const Tensor& x, const Forward& forward) {
  ModuleHooks* hooks = module.weight.tape().module_hooks;
  if (hooks == nullptr) return forward(x);
  Tensor output = forward(hooks->before_module(&module, std::span(parameters.begin(), parameters.size()), x));
  hooks->after_module(&module, output);
  return output;
}

}  // namespace memcalc
