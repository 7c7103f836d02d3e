// The autoencoder and the text encoders of a diffusion pipeline that stay on the card beside its denoising network:
// their weights do not train, and what they make of the batch is made before the network runs.
#include <memory>
#include <utility>

#include "memcalc/models/program_model.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/modes.h"
#include "memcalc/symbolic/ops/host_values.h"

namespace memcalc {

ProgramResident::ProgramResident() = default;
ProgramResident::ProgramResident(ProgramResident&&) noexcept = default;
ProgramResident::~ProgramResident() = default;

void ProgramModel::make_residents(Tape& tape) {
  const OnMetaDevice on_card(tape.memory, false);  // whatever the network itself is made on
  for (const PipelinePart& part : program_->parts) {
    if (!part.is_resident) continue;
    RunSpec run = run_;
    run.purpose = Inference{};
    run.fine_tuning = {};
    run.parallel = {};
    run.sequence_length = 0;  // as recorded
    const DType type = part.in_float32 ? DType::kFloat32 : weights_dtype_of(run_);
    run.weights_dtype = type;
    run.precision = type == DType::kBFloat16  ? Precision::kBf16
                    : type == DType::kFloat16 ? Precision::kFp16
                                              : Precision::kFp32;
    ModuleBuilder builder(tape, type);
    ProgramResident& made = residents_.emplace_back();
    made.model = std::make_unique<ProgramModel>(part.program, run, builder);
    for (const Parameter& each : builder.parameters) tape.autograd.set_trainable(each.tensor, false);
    for (const ModelInput& input : made.model->inputs) {
      // Pixels come from the data set in float32.
      const DType dtype = is_floating(input.dtype) ? DType::kFloat32 : input.dtype;
      Tensor tensor = moved_to_card(tape, input.shape, dtype);
      if (input.member != nullptr) {
        made.batch.*input.member = tensor;
        made.batch.others.emplace_back();
      } else {
        made.batch.others.push_back(std::move(tensor));
      }
    }
  }
}

void ProgramModel::run_residents() {
  if (residents_.empty()) return;
  const Scoped<bool> without_gradients(tape_.modes.grad_enabled, false);
  const Scoped<std::optional<DType>> without_autocast(tape_.modes.autocast.dtype, std::nullopt);
  const Scoped<ModuleHooks*> without_hooks(tape_.modes.module_hooks, nullptr);
  for (ProgramResident& each : residents_) (void)each.model->forward(each.batch);
}

}  // namespace memcalc
