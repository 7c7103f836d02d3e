// The accounting view: bytes per parameter in closed form, from a count of parameters, a precision and an optimizer.
// No simulation; the simulation's persistent categories must agree (tests/unit/accounting_test.cc).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/base/dtype.h"
#include "memcalc/report/report.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/ops/quantized.h"
#include "memcalc/train/optimizers/rule.h"

namespace memcalc {

/// Weights that are stored alike.
struct StoredWeights {
  std::string how;  // "bfloat16", "nf4"
  std::int64_t parameters = 0;
  Bytes bytes = 0;
};

struct AccountingInput {
  std::int64_t parameters = 0;            // elements of all weight tensors
  std::int64_t trainable_parameters = 0;  // of those that get a gradient
  std::int64_t trainable_tensors = 0;     // how many tensors those are
  DType weights_dtype = DType::kFloat32;
  Precision precision = Precision::kFp32;
  Optimizer optimizer = Optimizer::kAdamWForeach;
  Loop loop = Loop::kBare;
  StateBytes states;                   // of all trainable tensors, on the card
  Bytes host_states = 0;               // of those that are stepped on the host
  bool offloads = false;               // --offload-optimizer
  std::vector<StoredWeights> weights;  // of all tensors, by how they are stored
  Bytes constants = 0;                 // of packed weights: the scales of their blocks and the maps
  Bytes gradients = 0;                 // of all trainable tensors
  Bytes reference = 0;                 // weights of the model with which TRL's trainers compare
  bool infers = false;                 // no gradients, no states
  Bytes autocast_copies = 0;           // inference under one autocast region: what of the weights it keeps in 16 bits

  void add_frozen(const OptimizedTensor& tensor);
  void add_trainable(const OptimizedTensor& tensor);  // once optimizer and loop are set
  /// A weight of `elements` numbers that bitsandbytes, GPTQ or AWQ packs, which gets no gradient.
  void add_packed(const std::string& how, std::int64_t elements, const PackedBytes& packed);

 private:
  void add_weights(const std::string& how, std::int64_t elements, Bytes bytes);
};

/// Pre: counts are >= 0 and trainable_parameters <= parameters. Throws Error(kOverflow) beyond 63 bits.
[[nodiscard]] Accounting account(const AccountingInput& input);

/// The sum of the rows' bytes and of their bytes per parameter.
[[nodiscard]] AccountingRow total_of(const std::vector<AccountingRow>& rows);

}  // namespace memcalc
