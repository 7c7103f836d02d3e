#include "memcalc/symbolic/host_work.h"

#include "memcalc/symbolic/tape.h"

namespace memcalc {

void record_host_work(Tape& tape, HostWork work, std::int64_t times) {
  if (times == 0) return;
  tape.kernel(kHostWorkOperators[static_cast<std::size_t>(work)], OperatorClass::kMovement, DType::kFloat32, 0, 0,
              KernelKind::kPartOfPrevious);
  if (Kernel* kernel = tape.last_kernel()) kernel->m = times;
}

}  // namespace memcalc
