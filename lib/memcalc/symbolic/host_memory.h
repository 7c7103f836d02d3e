// Work of an optimizer whose arrays are in host memory: kernels that take no time on the card, as HostWork's, of which
// `elements` says how much there is. Covered by tests/unit/host_step_test.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

class Tape;

enum class HostMemoryWork : std::uint8_t {
  kPass,             // bytes that all threads of the process read and write
  kPassOfOneThread,  // that one thread does
  kLoop,             // that a loop of operators does, with results in new memory
  kLoopOfOneThread,
  kTensorStep,       // an optimizer of a single tensor is called
  kShardedOperator,  // an operator on a DTensor in host memory
};

inline constexpr std::array<Operator, 6> kHostMemoryOperators = {{{"host memory: a pass"},
                                                                  {"host memory: a pass of one thread"},
                                                                  {"host memory: a loop"},
                                                                  {"host memory: a loop of one thread"},
                                                                  {"Optimizer.step of a tensor"},
                                                                  {"DTensor: an operator on the host"}}};

void record_host_memory_work(Tape& tape, HostMemoryWork work, double amount);

/// Whether it is such work.
[[nodiscard]] inline bool is_host_memory_work(const Kernel& kernel) {
  constexpr std::less_equal<> kNotBehind;
  return kNotBehind(kHostMemoryOperators.data(), kernel.op) && kNotBehind(kernel.op, &kHostMemoryOperators.back());
}
/// Pre: it is.
[[nodiscard]] inline HostMemoryWork host_memory_work_of(const Kernel& kernel) {
  return static_cast<HostMemoryWork>(kernel.op - kHostMemoryOperators.data());
}

}  // namespace memcalc
