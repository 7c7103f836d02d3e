#include "memcalc/train/parallel/wrapper.h"

#include "memcalc/base/error.h"
#include "memcalc/spec/parallel_names.h"

namespace memcalc {

std::unique_ptr<ParallelWrapper> make_wrapper(Tape& /*tape*/, const RunSpec& run, std::int64_t /*rank*/) {
  if (!run.parallel.is_parallel()) return nullptr;
  throw Error(ErrorCode::kUnsupported,
              "parallel " + std::string(name_of(run.parallel.data_parallel)) + " is not modelled yet");
}

}  // namespace memcalc
