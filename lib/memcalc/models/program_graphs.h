// Covered by tests/measured/program_test.cc.
#pragma once

#include "memcalc/models/model.h"

namespace memcalc {

/// Whether torch.compile makes graphs of the model that it calls itself, with eager calls between them: a program that
/// Dynamo breaks.
[[nodiscard]] bool breaks_graph(const Model& model);

}  // namespace memcalc
