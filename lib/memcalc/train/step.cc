#include "memcalc/train/step.h"

#include <memory>

#include "memcalc/models/model.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/loop.h"

namespace memcalc {

namespace {

DType weights_dtype(const RunSpec& run) {
  if (run.weights_dtype) return *run.weights_dtype;
  switch (run.precision) {
    case Precision::kBf16: return DType::kBFloat16;
    case Precision::kFp16: return DType::kFloat16;
    default: return DType::kFloat32;
  }
}

}  // namespace

SymbolicRun run_symbolically(const ModelSpec& spec, const RunSpec& run, const DeviceSpec& device) {
  Tape tape(device);
  tape.allow_tf32 = run.precision == Precision::kTf32;
  SymbolicRun result;
  {
    const std::unique_ptr<Model> model = build_model(spec, run, tape, weights_dtype(run));
    if (run.loop == Loop::kTrainer) {
      run_trainer_loop(tape, *model, run);
    } else {
      run_bare_loop(tape, *model, run);
    }
    for (const Parameter& parameter : model->parameters) {
      result.parameters.push_back({parameter.name, parameter.tensor.elements(), parameter.tensor.dtype(),
                                   parameter.tensor.requires_grad()});
    }
    result.not_modelled = model->not_modelled;
    result.trace = std::move(tape.trace);
    result.kernels = std::move(tape.kernels);
    tape.stop();
  }
  return result;
}

}  // namespace memcalc
