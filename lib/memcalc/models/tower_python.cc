#include "memcalc/models/tower_python.h"

#include "memcalc/symbolic/host_work.h"

namespace memcalc {

namespace {

// By the reference host's rates: 690 us around the layers of a call, 0.064 for an instruction.
constexpr double kInstructionsOfCall = 10800;
// What a forward pass with images runs beside both models' layers, over a text's: 8,800 to 13,500 (Qwen3-VL).
constexpr double kAround = 9000;

}  // namespace

TowerPython::TowerPython(Tape& tape) : tape_(tape) { layer(kAround); }

void TowerPython::layer(double instructions) {
  if (tape_.modes.grad_enabled) return;
  not_recorded_ += instructions / kInstructionsOfCall;
  const auto calls = static_cast<std::int64_t>(not_recorded_);
  if (calls == 0) return;
  record_host_work(tape_, HostWork::kModelCall, calls);
  not_recorded_ -= static_cast<double>(calls);
}

}  // namespace memcalc
