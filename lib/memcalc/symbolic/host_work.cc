#include "memcalc/symbolic/host_work.h"

#include "memcalc/symbolic/tape.h"

namespace memcalc {

void record_host_work(Tape& tape, HostWork work, std::int64_t times) {
  if (times == 0) return;
  tape.kernels.add(kHostWorkOperators[static_cast<std::size_t>(work)], OperatorClass::kMovement, DType::kFloat32, 0, 0,
                   KernelKind::kPartOfPrevious);
  tape.kernels.describe(work::OfHost{.what = work, .times = times});
}

}  // namespace memcalc
