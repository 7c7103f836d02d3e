// Python of a tower that looks at images, in calls without autograd. cost/ counts 63 bytecode instructions of Python
// with each operator (cost/host_time.cc), a decoder's number; a tower's layers have fewer operators and as much code.
// What they run beyond that is recorded in calls of a model (HostWork::kModelCall), where the layers run, so that a
// card that is behind hides it. Instructions: transformers 5.17, counted on a CPU by
// tests/measured/harness/python_counts.py. Covered by tests/unit/tower_python_test.cc.
#pragma once

#include <cstdint>

#include "memcalc/symbolic/tape.h"

namespace memcalc {

class TowerPython {
 public:
  /// Around both models: the tower's own call, the placeholders' mask.
  explicit TowerPython(Tape& tape);
  /// A layer that runs so many instructions more than its operators count.
  void layer(double instructions);

 private:
  Tape& tape_;
  double not_recorded_ = 0;
};

}  // namespace memcalc
