#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/train/grad_scaler.h"
#include "memcalc/train/loop.h"
#include "memcalc/train/optimizer.h"

namespace memcalc {

namespace {

constexpr Operator kOnesLike{"aten::ones_like"}, kRandint{"aten::randint"};
constexpr int kSteps = 3;

Batch make_batch(Tape& tape, const RunSpec& run) {
  Batch batch;
  const Shape ids{run.batch_size, run.sequence_length};
  batch.input_ids = tape.empty(ids, DType::kInt64, kRandint, Category::kInputs);
  const bool classifies = run.task == Task::kSequenceClassification;
  batch.labels = tape.empty(classifies ? Shape{run.batch_size} : ids, DType::kInt64, kRandint, Category::kInputs);
  if (run.padding) batch.attention_mask = tape.empty(ids, DType::kInt64, kRandint, Category::kInputs);
  return batch;
}

std::optional<DType> autocast_dtype(Precision precision) {
  if (precision == Precision::kAmpFp16) return DType::kFloat16;
  if (precision == Precision::kAmpBf16) return DType::kBFloat16;
  return std::nullopt;
}

}  // namespace

Tensor ones_like(const Tensor& loss) { return loss.tape().empty(loss.shape(), loss.dtype(), kOnesLike); }

void run_bare_loop(Tape& tape, Model& model, const RunSpec& run) {
  Batch batch = make_batch(tape, run);
  tape.empty_cache();
  ParameterGroup all;
  for (const Parameter& parameter : model.parameters) all.push_back(parameter.tensor);
  OptimizerSteps optimizer(run.optimizer, {std::move(all)});
  GradScaler scaler(tape, run.precision == Precision::kAmpFp16);
  for (int step = 0; step < kSteps; ++step) {
    tape.step = step;
    tape.record_kernels = step == kSteps - 1;
    tape.phase = Phase::kZero;
    optimizer.zero_grad();
    for (std::int64_t micro_batch = 0; micro_batch < run.accumulation_steps; ++micro_batch) {
      tape.phase = Phase::kForward;
      Tensor loss;
      {
        tape.autocast = autocast_dtype(run.precision);
        ModelOutput output = model.forward(batch);
        tape.autocast.reset();
        tape.clear_cast_cache();
        loss = output.loss;
      }
      tape.phase = Phase::kBackward;
      {
        Tensor averaged = run.accumulation_steps > 1 ? divide_scalar(loss) : loss;
        const Tensor scaled = scaler.scale(averaged);
        averaged.reset();
        tape.backward(scaled, ones_like(scaled));
      }
      tape.phase = Phase::kDelete;
      loss.reset();
    }
    tape.phase = Phase::kOptimizer;
    if (run.max_grad_norm) clip_grad_norm(tape, model.parameters);
    scaler.step(optimizer);
    scaler.update();
  }
}

}  // namespace memcalc
