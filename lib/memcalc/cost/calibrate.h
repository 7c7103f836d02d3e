// Fits DeviceRates to timings of single operators: least squares on the logarithm of predicted over measured, by
// Levenberg and Marquardt's method. The only user of Eigen beside plan/.
// Covered by tests/unit/calibrate_test.cc.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "memcalc/cost/calibration.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// An operator that was timed: the kernels that it runs, one after the other.
struct OperatorTiming {
  std::string name;  // "gemm bf16", for the summary
  std::vector<Kernel> kernels;
  double seconds = 0;
};

/// `start`: the rates that the search begins with, and that stay where no timing depends on them.
[[nodiscard]] Calibration calibrate(const DeviceSpec& device, const DeviceRates& start,
                                    std::span<const OperatorTiming> timings);

/// The rows of a sweep (tests/measured/harness/opbench.py: {"kind": "gemm", …, "ms": …}) as timings; rows of kinds that
/// are no kernels are left out. `text`: JSON lines; `name`: of the file, for messages. Throws Error(kInput).
[[nodiscard]] std::vector<OperatorTiming> read_operator_timings(const std::string& text, const std::string& name);

}  // namespace memcalc
