// A module of a program around which peft puts wrappers of its parameters (param_wrapper.h). A program says which calls
// use a parameter, not where Python reads it.
// MIRRORS(transformers, "integrations/moe.py", "5.17.0")
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "memcalc/models/packed_experts.h"
#include "memcalc/models/program_binding.h"
#include "memcalc/spec/program_places.h"

namespace memcalc {

/// One run of such a module: from the instruction after its beginning until its end.
class WrappedRun {
 public:
  /// `tensors`: of the program, among which parameters stand with their adapters until the run is over.
  WrappedRun(const Program& program, const PlacedFunction& function, const std::vector<BoundInstruction>& body,
             std::size_t first, std::size_t end, const WrappedModule& module, std::vector<Tensor>& tensors);
  ~WrappedRun();
  WrappedRun(const WrappedRun&) = delete;
  WrappedRun& operator=(const WrappedRun&) = delete;

  [[nodiscard]] std::size_t end() const { return end_; }
  /// What the module reads before this instruction.
  void before(std::size_t instruction);

 private:
  struct Reading {
    std::size_t before = 0;  // of the body
    std::size_t tensor = 0;  // its place among the program's
    Tensor parameter;
  };

  std::size_t end_;
  std::vector<Tensor>& tensors_;
  ActiveWrappers wrappers_;
  std::vector<Reading> readings_;
};

/// The modules of a program that have such parameters, by their places among the program's modules; null: it has none.
[[nodiscard]] std::vector<std::shared_ptr<PackedExperts>> wrappable_modules(const Program& program);

}  // namespace memcalc
