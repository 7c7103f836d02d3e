// Kernels of wrappers that shard parameters, on flat tensors and outside of operators: what they take, not what they
// allocate. Covered by tests/unit/parallel_test.cc.
#pragma once

#include <cstdint>

#include "memcalc/base/dtype.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/kernel_list.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// Reads `elements` of one type and writes them in another.
inline void cast_kernel(Tape& tape, std::int64_t elements, DType from, DType to) {
  tape.kernels.add(aten::kToCopy, OperatorClass::kMovement, to, 0,
                   static_cast<double>(elements * (size_of(from) + size_of(to))),
                   from == to ? KernelKind::kVectorized : KernelKind::kConverting, static_cast<double>(elements));
}

/// Adds a gradient to what earlier micro-batches left of it.
inline void accumulate_kernel(Tape& tape, std::int64_t elements, DType dtype) {
  const auto added = static_cast<double>(elements);
  tape.kernels.add(aten::kAdd, OperatorClass::kElementwise, dtype, added, 3 * added * size_of(dtype),
                   KernelKind::kVectorized, added);
}

}  // namespace memcalc
