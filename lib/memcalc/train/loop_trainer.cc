#include "memcalc/train/loop.h"

namespace memcalc {

void run_trainer_loop(Tape& tape, Model& model, const RunSpec& run) {
  run_bare_loop(tape, model, run);  // replaced below by the Trainer's own order
}

}  // namespace memcalc
