// The accounting view: bytes per parameter in closed form, from a count of parameters, a precision and an optimizer.
// No simulation; the simulation's persistent categories must agree (tests/unit/accounting_test.cc).
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/base/dtype.h"
#include "memcalc/report/report.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/train/optimizers/rule.h"

namespace memcalc {

struct AccountingInput {
  std::int64_t parameters = 0;            // elements of all weight tensors
  std::int64_t trainable_parameters = 0;  // of those that get a gradient
  std::int64_t trainable_tensors = 0;     // how many tensors those are
  DType weights_dtype = DType::kFloat32;
  Precision precision = Precision::kFp32;
  Optimizer optimizer = Optimizer::kAdamWForeach;
  Loop loop = Loop::kBare;
  StateBytes states;      // of all trainable tensors, on the card
  Bytes host_states = 0;  // of those that are stepped on the host
  bool offloads = false;  // --offload-optimizer

  void add_frozen(const OptimizedTensor& tensor);
  void add_trainable(const OptimizedTensor& tensor);  // once optimizer and loop are set
};

/// Pre: counts are >= 0 and trainable_parameters <= parameters. Throws Error(kOverflow) beyond 63 bits.
[[nodiscard]] Accounting account(const AccountingInput& input);

/// The sum of the rows' bytes and of their bytes per parameter.
[[nodiscard]] AccountingRow total_of(const std::vector<AccountingRow>& rows);

}  // namespace memcalc
