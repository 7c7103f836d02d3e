// The precisions in which a family is compared with its recorded program.
#pragma once

#include "memcalc/base/dtype.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc::test {

struct Way {
  const char* name;
  Precision precision;
  DType weights;
};

inline constexpr Way kWays[] = {{"float32", Precision::kFp32, DType::kFloat32},
                                {"bfloat16", Precision::kBf16, DType::kBFloat16},
                                {"autocast", Precision::kAmpBf16, DType::kFloat32}};

}  // namespace memcalc::test
