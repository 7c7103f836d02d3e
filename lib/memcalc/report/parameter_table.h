// A model's parameters as its framework names them. Covered by tests/python/estimate_test.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/base/dtype.h"

namespace memcalc {

struct ParameterRow {
  std::string name;                 // "bert.encoder.layer.0.attention.self.query.weight"
  std::vector<std::int64_t> shape;  // outermost first
  DType dtype = DType::kFloat32;    // in which the module holds it
  bool trainable = true;
};

}  // namespace memcalc
