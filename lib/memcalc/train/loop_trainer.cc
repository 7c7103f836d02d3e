// transformers/trainer.py (train, _inner_training_loop) and trainer_callback.py: which steps and evaluations are made.
// MIRRORS(transformers, "trainer.py", "5.17.0")
// MIRRORS(transformers, "trainer_callback.py", "5.17.0")
#include <algorithm>
#include <optional>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/train/compile/compiled_model.h"
#include "memcalc/train/data/data_steps.h"
#include "memcalc/train/data_loop.h"
#include "memcalc/train/loading.h"
#include "memcalc/train/loop.h"
#include "memcalc/train/repeat.h"
#include "memcalc/train/saving.h"
#include "memcalc/train/trainer_loop.h"
#include "memcalc/train/trl/float32_head.h"

namespace memcalc {

namespace {

/// The Trainer shuffles. Where half of the sequences are padded, a batch of B has none with probability 2^-B: of three
/// steps about two at B = 1, one at B = 2, and none beyond. Such a step builds no mask and leaves other blocks behind.
int steps_without_padding(const RunSpec& run) {
  if (!run.padding || run.batch_size > 2) return 0;
  return run.batch_size == 1 ? 2 : 1;
}

/// GRPOTrainer and RLOOTrainer: a generation lasts for whole steps, more than one.
bool generates_between(const RunSpec& run) {
  if (!run.generates() || run.training().loop == Loop::kTrlOnlineDpo) return false;
  const std::int64_t every = run.training().generate_every(), count = run.training().accumulation_steps;
  return every > count && every % count == 0;
}

/// Steps that are made: where generations and steps come out of step, until the second generation beside the
/// optimizer's states. Where a generation lasts for several steps, those between the second and the last are left out.
int steps_of(const RunSpec& run) {
  if (!run.generates() || run.training().loop == Loop::kTrlOnlineDpo || generates_between(run)) return kSteps;
  const std::int64_t every = run.training().generate_every(), count = run.training().accumulation_steps;
  if (every <= count) return kSteps;
  return static_cast<int>(std::min<std::int64_t>(kSteps + ceil_div(every, count), 4 * kSteps));
}

/// Whose kernels are listed: the last step with fewest generations, but one at least.
int listed_step(const RunSpec& run, int steps) {
  if (!run.generates() || run.training().loop == Loop::kTrlOnlineDpo || generates_between(run)) return steps - 1;
  const std::int64_t count = run.training().accumulation_steps;
  const std::int64_t fewest = std::max<std::int64_t>(1, count / run.training().generate_every());
  for (int step = steps - 1; step > 0; --step) {
    if (generations_of(run, step * count) == fewest) return step;
  }
  return steps - 1;
}

/// _precompute_ref_logps of DPOTrainer and KTOTrainer, which runs the model over the data when the trainer is made: one
/// batch of it. What it frees does not last (accelerator.free_memory()), its products' workspaces do.
void precompute_reference(Tape& tape, Model& model, const RunSpec& run, ParallelWrapper* wrapper) {
  const Training& training = run.training();
  const bool passes = run.uses_trl() && training.reference == Reference::kPrecomputed && wrapper == nullptr;
  if (!passes || training.whole_logits) return;
  const NoGrad no_grad(tape.modes);
  const Scoped without_adapters(tape.modes.adapters_disabled, true);
  Batch batch = make_batch(tape, model, run, aten::kToCopy);
  const FusedHeadCall head{.outputs = {.entropy = true, .mean_logits = true}, .targets = shape_of(run).valid_labels};
  if (tape.behaviors.preference_scores == PreferenceScores::kFusedHead) {
    batch.fused_head = &head;
    batch.labels = no_grad::masked_fill(batch.input_ids, no_grad::equal(batch.completion_mask));
  }
  const ModelOutput outputs = call_model(tape, model, run, nullptr, batch, true);
}

}  // namespace

DataSteps run_trainer_loop(Tape& tape, Model& model, const RunSpec& run, ParallelWrapper* wrapper,
                           ComparedModel reference, const SpecialTokens& tokens, const FewLayers* few_layers) {
  begin_stage(tape, run, Phase::kPrepare);
  if (!reference.model_is_prepared) prepare_model(tape, model, run);
  if (run.training().float32_head) {
    cast_head_to_float32(tape, model, run);
    if (reference.model != nullptr) cast_head_to_float32(tape, *reference.model, run);
  }
  precompute_reference(tape, model, run, wrapper);
  begin_stage(tape, run, Phase::kForward);
  tape.memory.empty_cache();  // accelerator.free_memory(), when training begins
  if (wrapper != nullptr) {
    begin_stage(tape, run, Phase::kPrepare);
    wrapper->wrap(model);
  }
  TrainerLoop loop(tape, model, run, wrapper, reference, tokens);
  tape.kernels.recording = true;
  tape.moment.step = 0;
  const int without_padding = steps_without_padding(run);
  if (run.training().lengths) {
    DataSteps steps = data_steps(run, tape.processes, tape.process_index);
    const bool evaluates = run.training().evaluation.has_value();
    DataLoop whole(tape, loop, steps);
    whole.evaluates = evaluates;
    std::optional<TellingLoop<TrainerLoop>> few;
    if (few_layers != nullptr && !evaluates && steps.simulated.size() >= kFewestTold) {
      prepare_model(few_layers->tape, few_layers->model, run);
      precompute_reference(few_layers->tape, few_layers->model, run, wrapper);
      few.emplace(*few_layers, run, tokens, steps);
    }
    CountedFirstCalls first_calls;
    // A generation that is one of many alike is not made where kernels are not recorded.
    if (!run.generates() && !run.compiles()) (few ? few->data_loop() : whole).first_calls = &first_calls;
    if (few) {
      few->run(tape.memory.trace, whole);
    } else {
      for (std::size_t i = 0; i < steps.simulated.size(); ++i) (void)whole.step(i);
    }
    if (evaluates && saves(run)) loop.evaluate();
    save_trained(tape, model, run, wrapper, [&] { loop.end(); });
    tape.memory.stop();
    if (few) tape.memory.trace = few->composed();
    if (run.generates()) first_calls = generated_first_calls(run, steps);
    set_first_calls(steps, first_calls);
    return steps;
  }
  const bool evaluates = run.training().evaluation.has_value();
  const bool steps_are_alike = without_padding == 0 && run.training().skipped_steps == 0 && wrapper == nullptr &&
                               !evaluates && !run.generates() && !run.records_graphs() &&
                               !compile::compiles_again(run, model) &&
                               !run.fine_tuning.unsloth;  // whose first pass makes what it keeps
  if (steps_are_alike && !saves(run)) {
    CarriedVariables carried;
    const auto variables = [&](auto visit) { loop.visit_carried(visit); };
    carried.place(tape, variables);
    const std::size_t first_event = tape.memory.trace.events.size();
    const std::size_t first_block = tape.memory.trace.blocks.size();
    loop.step(true);
    carried.collect(variables);
    repeat_step(tape, first_event, first_block, carried, kSteps - 1);
  } else {
    const int steps = steps_of(run), listed = listed_step(run, steps);
    for (; tape.moment.step < steps; ++tape.moment.step) {
      const bool is_last = tape.moment.step == steps - 1;
      if (is_last && generates_between(run)) loop.skip_to_generation();
      tape.kernels.recording = false;
      if (evaluates && is_last) loop.evaluate();
      tape.kernels.recording = tape.moment.step == (steps_are_alike ? 0 : listed);
      if (tape.kernels.recording) tape.kernels.forget_host_calls();  // of the steps and evaluations before
      loop.step(tape.moment.step >= without_padding);
    }
    // With the last step comes an evaluation, too (trainer_callback.py, DefaultFlowCallback.on_step_end).
    tape.kernels.recording = false;
    if (evaluates && saves(run)) loop.evaluate();
    save_trained(tape, model, run, wrapper, [&] { loop.end(); });
  }
  tape.memory.stop();
  return {};
}

}  // namespace memcalc
