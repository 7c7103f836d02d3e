#include "memcalc/symbolic/host_memory.h"

#include "memcalc/symbolic/tape.h"

namespace memcalc {

void record_host_memory_work(Tape& tape, HostMemoryWork work, double amount) {
  if (amount <= 0) return;
  tape.kernels.add(kHostMemoryOperators[static_cast<std::size_t>(work)], OperatorClass::kMovement, DType::kFloat32, 0,
                   0, KernelKind::kPartOfPrevious, amount);
}

}  // namespace memcalc
