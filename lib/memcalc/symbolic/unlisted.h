// Operators that are called for their memory alone.
#pragma once

#include "memcalc/symbolic/modes.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// Until the scope ends, neither autograd, nor a tracer, nor the list of kernels (but where it asks for integers) sees
/// what is called.
class Unlisted {
 public:
  explicit Unlisted(Tape& tape)
      : no_grad_(tape.modes), recording_(tape.kernels.recording, tape.kernels.recording && tape.kernels.integers) {}

 private:
  NoGrad no_grad_;
  Scoped<bool> recording_;
};

}  // namespace memcalc
