#include "memcalc/train/parallel/wrapper.h"

#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/parallel.h"
#include "memcalc/spec/parallel_names.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/train/parallel/context_parallel.h"
#include "memcalc/train/parallel/data_parallel.h"
#include "memcalc/train/parallel/ddp.h"
#include "memcalc/train/parallel/deepspeed_zero.h"
#include "memcalc/train/parallel/deepspeed_zero3.h"
#include "memcalc/train/parallel/expert_parallel.h"
#include "memcalc/train/parallel/fsdp1.h"
#include "memcalc/train/parallel/fsdp2.h"
#include "memcalc/train/parallel/tensor_parallel.h"
#include "memcalc/train/parallel/ulysses.h"
#include "memcalc/train/parallel/zero1.h"

namespace memcalc {

ParameterGroup ParallelWrapper::optimizer_parameters(const Model& model) const {
  ParameterGroup group;
  for (const Parameter& parameter : model.parameters) {
    if (parameter.tensor.requires_grad()) group.push_back(&parameter);
  }
  return group;
}

MixedPrecisionPolicy mixed_precision_of(const RunSpec& run) {
  const bool policy = run.uses_trainer() && run.precision == Precision::kAmpBf16;
  const std::optional<DType> usual = policy ? std::optional(DType::kBFloat16) : std::nullopt;
  const TorchMesh& mesh = run.parallel.torch();
  return {.param_dtype = mesh.fsdp_param_dtype ? mesh.fsdp_param_dtype : usual,
          .reduce_dtype = mesh.fsdp_reduce_dtype ? mesh.fsdp_reduce_dtype : usual,
          .output_dtype = usual};
}

Batch cast_inputs(const Batch& batch, std::optional<DType> dtype) {
  Batch inputs = batch;
  if (!dtype) return inputs;
  for (Tensor* input : {&inputs.input_features, &inputs.pixel_values}) {
    if (input->defined() && input->dtype() != *dtype) *input = to_dtype(*input, *dtype);
  }
  return inputs;
}

Tensor ParallelWrapper::averaged_loss(const Tensor& loss) {
  return run.training().accumulation_steps > 1 ? divide_scalar(loss) : loss;
}

namespace {

/// What the ranks do that share parameters, gradients and optimizer states.
std::unique_ptr<ParallelWrapper> make_sharing(Tape& tape, const RunSpec& run, std::int64_t rank, std::int64_t chunk) {
  switch (run.parallel.data_parallel) {
    case DataParallel::kDp: return std::make_unique<DataParallelModule>(tape, run, rank);
    case DataParallel::kDdp: return std::make_unique<Ddp>(tape, run, rank);
    case DataParallel::kZero1: return std::make_unique<Zero1>(tape, run, rank);
    case DataParallel::kDsZero1:
    case DataParallel::kDsZero2: return std::make_unique<DeepSpeedZero1And2>(tape, run, rank);
    case DataParallel::kDsZero3: return std::make_unique<DeepSpeedZero3>(tape, run, rank);
    case DataParallel::kFsdp1: return std::make_unique<Fsdp1>(tape, run, rank, chunk);
    case DataParallel::kFsdp2: return std::make_unique<Fsdp2>(tape, run, rank, chunk);
    default: break;
  }
  throw Error(ErrorCode::kInternal, "a data-parallel mode without a wrapper");
}

}  // namespace

std::int64_t place_among_sharing(const Parallel& parallel, std::int64_t rank) {
  return rank / parallel.tensor % sharing_ranks(parallel);
}

// From the inside out: what shares or shards parameters takes them as tensor parallelism leaves them, and attention
// becomes a ring around both.
std::unique_ptr<ParallelWrapper> make_wrapper(Tape& tape, const RunSpec& run, std::int64_t rank) {
  const Parallel& p = run.parallel;
  if (!p.is_parallel()) return nullptr;
  if (p.expert > 1) return std::make_unique<ExpertParallel>(tape, run, rank);
  std::unique_ptr<ParallelWrapper> wrapper = make_stage_wrapper(tape, run, rank, 0);
  if (p.context > 1 && p.framework() == Framework::kDeepSpeed) {
    return std::make_unique<Ulysses>(tape, run, rank, std::move(wrapper));
  }
  if (p.context > 1) wrapper = std::make_unique<ContextParallelism>(tape, run, rank, std::move(wrapper));
  return wrapper;
}

std::unique_ptr<ParallelWrapper> make_reference_wrapper(Tape& tape, const RunSpec& run, std::int64_t rank) {
  constexpr std::int64_t kAnotherRoot = 1;  // with streams of its own
  return make_sharing(tape, run, rank, kAnotherRoot);
}

std::unique_ptr<ParallelWrapper> make_stage_wrapper(Tape& tape, const RunSpec& run, std::int64_t rank,
                                                    std::int64_t chunk) {
  const Parallel& p = run.parallel;
  std::unique_ptr<ParallelWrapper> wrapper;
  if (p.data_parallel != DataParallel::kNone) wrapper = make_sharing(tape, run, rank, chunk);
  if (p.tensor > 1) wrapper = std::make_unique<TensorParallel>(tape, run, rank, std::move(wrapper));
  return wrapper;
}

}  // namespace memcalc
