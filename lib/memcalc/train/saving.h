// What is done with a model that has trained: a checkpoint, peft's merge_and_unload. Covered by
// tests/unit/model_saving_test.cc and tests/measured/stages_test.py.
#pragma once

#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/parallel/wrapper.h"

namespace memcalc {

[[nodiscard]] inline bool saves(const RunSpec& run) { return run.training().saving != ModelSaving::kNone; }

/// merge_and_unload(): each adapter is added to its layer's weight, one layer after the other. The optimizer still
/// holds the adapters' parameters.
void merge_adapters(Tape& tape, Model& model);

/// unmerge_adapter() of what merge_adapter() merged into weights that are not packed: each adapter is taken out again.
void unmerge_adapters(Tape& tape, const Model& model);

/// save_pretrained(): of the whole model, or of its adapters alone. What the card needs for it; the tensors are written
/// from copies on the host.
void save_model(Tape& tape, const Model& model, bool adapters_alone);

/// accelerate's get_state_dict of a model that FSDP2 shards (StateDictOptions: full_state_dict, cpu_offload): each
/// parameter, and then each optimizer state of its shape, is gathered on every rank and copied to rank 0's host.
/// `whole_shapes`: of the parameters before they were sharded.
void gather_full_state(Tape& tape, const Model& model, const RunSpec& run, const std::vector<Shape>& whole_shapes);

/// What --save asks for, after the last step: a checkpoint while the loop's variables live, or, once `end_loop` has let
/// them go, the merged model. `wrapper`: null on one GPU.
template <typename EndLoop>
void save_trained(Tape& tape, Model& model, const RunSpec& run, ParallelWrapper* wrapper, EndLoop end_loop) {
  if (!saves(run)) return;
  tape.kernels.recording = false;
  if (run.training().saving == ModelSaving::kMerge) {
    end_loop();
    tape.moment.phase = Phase::kMerge;
    merge_adapters(tape, model);
  }
  tape.moment.phase = Phase::kSave;
  const bool gathers_units = run.parallel.data_parallel == DataParallel::kFsdp1 && wrapper->gather_state();
  if (gathers_units) return;
  if (run.training().saving == ModelSaving::kFull) return gather_full_state(tape, model, run, wrapper->whole_shapes);
  if (run.training().saving == ModelSaving::kSharded) return;  // each rank writes its own parts from where they are
  if (wrapper != nullptr && wrapper->gather_state()) return;
  save_model(tape, model, run.fine_tuning.lora && run.training().saving == ModelSaving::kCheckpoint);
}

}  // namespace memcalc
