#include "memcalc/report/verdict.h"

#include <cmath>

#include "memcalc/spec/prediction_errors.h"

namespace memcalc {

Bytes error_of(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, Bytes reserved, Bytes assumed) {
  if (device.errors == nullptr) return assumed;
  const double share = device.errors->shares[static_cast<std::size_t>(kind_of(model, run))];
  return assumed + static_cast<Bytes>(std::llround(share * static_cast<double>(reserved)));
}

}  // namespace memcalc
