// What is done with a model that has trained: a checkpoint, peft's merge_and_unload. Covered by
// tests/unit/model_saving_test.cc and tests/measured/stages_test.py.
#pragma once

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

[[nodiscard]] inline bool saves(const RunSpec& run) { return run.training().saving != ModelSaving::kNone; }

/// merge_and_unload(): each adapter is added to its layer's weight, one layer after the other. The optimizer still
/// holds the adapters' parameters.
void merge_adapters(Tape& tape, Model& model);

/// save_pretrained(): of the whole model, or of its adapters alone. What the card needs for it; the tensors are written
/// from copies on the host.
void save_model(Tape& tape, const Model& model, bool adapters_alone);

/// What --save asks for, after the last step: a checkpoint while the loop's variables live, or, once `end_loop` has let
/// them go, the merged model.
template <typename EndLoop>
void save_trained(Tape& tape, Model& model, const RunSpec& run, EndLoop end_loop) {
  if (!saves(run)) return;
  tape.kernels.recording = false;
  if (run.training().saving == ModelSaving::kMerge) {
    end_loop();
    tape.moment.phase = Phase::kMerge;
    merge_adapters(tape, model);
  }
  tape.moment.phase = Phase::kSave;
  save_model(tape, model, run.fine_tuning.lora && run.training().saving == ModelSaving::kCheckpoint);
}

}  // namespace memcalc
