// MIRRORS(deepspeed, "runtime/utils.py", "0.19.8")
// MIRRORS(deepspeed, "utils/timer.py", "0.19.8")
#include "memcalc/train/parallel/deepspeed_engine.h"

#include "memcalc/spec/parallel.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/within_call.h"
#include "memcalc/train/optimizers/host_step.h"
#include "memcalc/train/optimizers/lists.h"
#include "memcalc/train/parallel/shard_kernels.h"

namespace memcalc {

namespace {

constexpr Operator kFinite{"deepspeed::has_inf_or_nan"};
constexpr Operator kTotalNorm{"deepspeed::scaled_global_norm"}, kClip{"deepspeed::unscale_and_clip_grads"};
constexpr Operator kTimer{"deepspeed::ThroughputTimer"};

// Kernels over one number or as many as there are gradients, as a timeline of 0.19.8 shows them: of has_inf_or_nan,
// with a memset and a reduction for each extreme; from the stack of the norms to where mask_nan_or_inf_with_val_inplace
// waits for what it makes on the card; of combine_grad_norm_groups and is_invalid_grad_norm; and from there to the
// scale.
constexpr std::int32_t kFiniteLaunches = 16, kNormLaunches = 10, kCombineLaunches = 21, kInvalidLaunches = 8;
constexpr std::int32_t kScaleLaunches = 7;

/// The kernel recorded last is the engine's own.
void count_for_card_alone(Tape& tape) {
  if (Kernel* const kernel = tape.kernels.last()) kernel->node = &kOfHostWork;
}

void small_kernels(Tape& tape, const Operator& op, std::int32_t launches) {
  tape.kernels.add(op, OperatorClass::kElementwise, DType::kFloat32, 0, 2.0 * size_of(DType::kFloat32));
  if (Kernel* const kernel = tape.kernels.last()) kernel->launches = launches;
}

}  // namespace

DType deepspeed_dtype(const RunSpec& run) {
  if (!run.uses_trainer() || !is_autocast(run.precision)) return weights_dtype_of(run);
  return run.precision == Precision::kAmpBf16 ? DType::kBFloat16 : DType::kFloat16;
}

DeepSpeedEngine::DeepSpeedEngine(Tape& tape, const RunSpec& run, std::int64_t rank)
    : ParallelWrapper(tape, run, rank),
      ranks(sharing_ranks(run.parallel)),
      dtype(deepspeed_dtype(run)),
      reduce_dtype(run.parallel.context > 1 ? DType::kFloat32 : dtype) {  // seq_parallel_communication_data_type
  empties_cache = false;
  if (run.uses_trainer()) {
    assumptions.emplace_back(
        "the optimizer is the Trainer's own, given to DeepSpeed in two groups, weights that decay and the rest: its "
        "configuration has no \"optimizer\"");
    return;
  }
  assumptions.emplace_back(
      "the optimizer is torch's, given to deepspeed.initialize(); DeepSpeed's own FusedAdam takes what adamw-fused "
      "does");
}

std::vector<std::vector<Parameter*>> DeepSpeedEngine::parameter_groups(Model& model) const {
  std::vector<std::vector<Parameter*>> groups(2);
  for (Parameter& parameter : model.parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    groups[group_of(parameter, run)].push_back(&parameter);
  }
  std::erase_if(groups, [](const auto& group) { return group.empty(); });  // engine.py, _configure_optimizer
  return groups;
}

// _cast_module_mixed_precision of what bitsandbytes has put on the card; packed weights are bytes.
void DeepSpeedEngine::cast_on_card(const Model& model) const {
  for (const Parameter& parameter : model.parameters) {
    const DType own = parameter.tensor.dtype();
    if (is_floating(own) && own != dtype) tape.convert(parameter.tensor, dtype, aten::kToCopy);
  }
}

void DeepSpeedEngine::move_to_host(Model& model) {
  for (const Parameter& parameter : model.parameters) drop_data(parameter.tensor);
  for (const Tensor& buffer : model.buffers) drop_data(buffer);
  tape.memory.empty_cache();
  const OnMetaDevice on_meta(tape.memory);
  for (const Parameter& parameter : model.parameters) {
    if (parameter.tensor.dtype() != dtype) tape.convert(parameter.tensor, dtype, aten::kToCopy);
  }
}

// tensor.data = torch.empty(0)
void DeepSpeedEngine::drop_data(const Tensor& tensor) const {
  const Tensor nothing = tape.empty({0}, tensor.dtype(), aten::kToCopy);
  std::swap(tensor.impl()->block, nothing.impl()->block);
}

void DeepSpeedEngine::move_to_card(const Tensor& tensor) const {
  Tensor moved = tape.empty(tensor.shape(), tensor.dtype(), aten::kToCopy, Category::kWeights);
  tape.take_storage(tensor, moved);
}

// engine.backward(loss): divided by gradient_accumulation_steps, also by 1, then scaled, also by 1.
// What it was before it was scaled is returned, so that it lives until the backward pass is over. accelerate calls it
// with scale_wrt_gas=False: it is scaled alone.
Tensor DeepSpeedEngine::averaged_loss(const Tensor& loss) {
  if (run.uses_trainer()) return multiply_scalar(loss);
  gas_scaled_loss_ = divide_scalar(loss);
  return multiply_scalar(gas_scaled_loss_);
}

void DeepSpeedEngine::after_backward(bool /*last*/) { gas_scaled_loss_.reset(); }

// start() in _forward_prologue, from the third step on, waits for the card unless the configuration's "timers" say
// otherwise; stop() at the end of step() does, too, right before it.
void DeepSpeedEngine::begin_forward() const { tape.kernels.synchronize(kTimer); }

bool DeepSpeedEngine::overflows() const {
  return dtype == DType::kFloat16 && tape.moment.step < run.training().skipped_steps;
}

void DeepSpeedEngine::add_master(std::int64_t elements) {
  MasterPart& part = masters.emplace_back(MasterPart{.elements = elements, .parameter = {}});
  const OnMetaDevice on_meta(tape.memory, offloads_states());
  part.parameter = {.name = "float32 partition", .tensor = tape.parameter({elements}, DType::kFloat32)};
  tape.memory.set_category(part.parameter.tensor.block(), Category::kOptimizerStates);
}

void DeepSpeedEngine::make_optimizers() {
  if (offloads_states()) return;
  for (const MasterPart& part : masters) {
    optimizers_.emplace_back(tape, run, std::vector<ParameterGroup>{{&part.parameter}});
  }
}

void DeepSpeedEngine::step_part(std::size_t part) {
  if (!offloads_states()) optimizers_[part].step();
}

// step() of runtime/zero/stage_1_and_2.py, _optimizer_step() of stage3.py: each part's gradients are divided by the
// loss's scale, the optimizer steps, its weights are rounded in host memory and copied to the card. That memory is not
// pinned where nobody asks for it.
void DeepSpeedEngine::step_on_host() const {
  const std::int64_t elements = master_elements();
  constexpr double kWide = 4;
  record_host_passes(tape, run,
                     static_cast<double>(elements) * (2 * kWide + kWide + static_cast<double>(size_of(dtype))));
  record_host_step(tape, run, elements, size_of(DType::kFloat32));
  tape.kernels.add(aten::kToCopy, OperatorClass::kMovement, dtype, 0, static_cast<double>(elements * size_of(dtype)),
                   KernelKind::kCopyToDevice);
}

void DeepSpeedEngine::check_finite(std::int64_t elements) const {
  const auto finite = [&] {
    const Tensor extreme = scalar(tape, dtype, kFinite);  // amax, amin
    const Tensor equal = scalar(tape, DType::kBool, kFinite);
    const Tensor absolute = scalar(tape, dtype, kFinite);
    const Tensor unequal = scalar(tape, DType::kBool, kFinite);
    return scalar(tape, DType::kBool, kFinite);
  };
  tape.kernels.add(kFinite, OperatorClass::kElementwise, dtype, 0, 2.0 * static_cast<double>(elements * size_of(dtype)),
                   KernelKind::kRowSum);
  if (Kernel* const kernel = tape.kernels.last()) kernel->launches = kFiniteLaunches;
  count_for_card_alone(tape);
  const Tensor no_nan = finite();
  const Tensor no_infinity = finite();
  const Tensor both = scalar(tape, DType::kBool, kFinite);
  const Tensor neither = scalar(tape, DType::kBool, kFinite);
}

Tensor DeepSpeedEngine::norm_of(std::span<const std::int64_t> pieces) {
  TensorList norms;
  for (const std::int64_t elements : pieces) {
    const Tensor wide = tape.empty({elements}, DType::kFloat64, aten::kToCopy);
    const auto count = static_cast<double>(elements);
    cast_kernel(tape, elements, dtype, DType::kFloat64);
    Tensor each = scalar(tape, DType::kFloat64, aten::kLinalgVectorNorm);
    reduction_scratch(wide, 1, size_of(DType::kFloat64), aten::kLinalgVectorNorm);
    tape.kernels.add(aten::kLinalgVectorNorm, OperatorClass::kElementwise, DType::kFloat64, 2 * count, 8 * count);
    norms.push_back(std::move(each));
  }
  Tensor stacked = tape.empty({static_cast<std::int64_t>(pieces.size())}, DType::kFloat64, aten::kStack);
  Tensor squares = tape.empty({static_cast<std::int64_t>(pieces.size())}, DType::kFloat64, kTotalNorm);
  stacked.reset();
  Tensor sum = scalar(tape, DType::kFloat64, kTotalNorm);
  squares.reset();
  const Tensor total = scalar(tape, DType::kFloat32, kTotalNorm);
  sum.reset();
  small_kernels(tape, kTotalNorm, kNormLaunches);
  tape.kernels.synchronize(kTotalNorm);  // torch.tensor(-1.0, device=device)
  return scalar(tape, DType::kFloat32, kTotalNorm);
}

void DeepSpeedEngine::wait_for_norm() const {
  small_kernels(tape, kTotalNorm, kCombineLaunches);
  tape.kernels.synchronize(kTotalNorm);  // is_invalid_grad_norm
}

void DeepSpeedEngine::take_norm(std::span<const std::int64_t> pieces) {
  const Tensor root = norm_of(pieces);
  wait_for_norm();
  global_norm_ = scalar(tape, DType::kFloat32, kTotalNorm);
}

// combine_grad_norm_groups (deepspeed/runtime/utils.py)
void DeepSpeedEngine::take_norms(const std::vector<std::vector<std::int64_t>>& groups) {
  if (groups.size() == 1) return take_norm(groups.front());
  TensorList norms;
  for (const std::vector<std::int64_t>& pieces : groups) norms.push_back(norm_of(pieces));
  const auto count = static_cast<std::int64_t>(groups.size());
  Tensor stacked = tape.empty({count}, DType::kFloat32, aten::kStack);
  const Tensor invalid = scalar(tape, DType::kBool, kTotalNorm);
  const Tensor combined = scalar(tape, DType::kFloat32, aten::kLinalgVectorNorm);
  {
    const Tensor infinite = scalar(tape, DType::kFloat32, kTotalNorm);
    const Tensor chosen = scalar(tape, DType::kFloat32, kTotalNorm);
    wait_for_norm();
  }
  global_norm_ = scalar(tape, DType::kFloat32, kTotalNorm);
}

void DeepSpeedEngine::pass_kernel(std::int64_t elements, DType from, DType to) const {
  cast_kernel(tape, elements, from, to);
  count_for_card_alone(tape);
}

void DeepSpeedEngine::add_kernel(std::int64_t elements) const {
  accumulate_kernel(tape, elements, dtype);
  count_for_card_alone(tape);
}

// flat.to(single_partition_of_fp32_groups[i].dtype)
Tensor DeepSpeedEngine::widened(const Tensor& gradients, std::int64_t elements) const {
  if (dtype == DType::kFloat32) return gradients;
  pass_kernel(elements, dtype, DType::kFloat32);
  return tape.empty({elements}, DType::kFloat32, aten::kToCopy, Category::kGradients);
}

// unscale_and_clip_grads: where nothing clips or scales, stages 1 and 2 pass and stage 3 multiplies by 1. Stages 1 and
// 2 ask once more whether the norm is one.
void DeepSpeedEngine::scale_gradients(std::int64_t elements) const {
  const bool stage3 = run.parallel.data_parallel == DataParallel::kDsZero3;
  const bool clips = run.training().max_grad_norm.value_or(0) > 0;
  if (clips) {
    if (!stage3) {
      small_kernels(tape, kClip, kInvalidLaunches);
      tape.kernels.synchronize(kClip);
    }
    small_kernels(tape, kClip, kScaleLaunches);
  }
  if (!clips) {
    if (stage3 || dtype == DType::kFloat16) pass_kernel(elements, DType::kFloat32);
    return;
  }
  // A number on the card is an operand that is broadcast.
  const auto count = static_cast<double>(elements);
  tape.kernels.add(aten::kMul, OperatorClass::kElementwise, DType::kFloat32, count, 2 * 4 * count, KernelKind::kStrided,
                   count);
  count_for_card_alone(tape);
  const Tensor clip = scalar(tape, DType::kFloat32, kClip);
  const Tensor clamped = scalar(tape, DType::kFloat32, kClip);
  const Tensor inverse = scalar(tape, DType::kFloat32, kClip);
}

std::int64_t DeepSpeedEngine::master_elements() const {
  std::int64_t total = 0;
  for (const MasterPart& part : masters) total = checked_add(total, part.elements);
  return total;
}

Bytes DeepSpeedEngine::state_bytes() const {
  const OptimizerRule& rule = rule_of(run.training().optimizer);
  Bytes total = 0;
  for (const MasterPart& part : masters) {
    const StateBytes held = rule.state_bytes({.shape = {part.elements}, .dtype = DType::kFloat32}, run.training().loop);
    total = checked_add(total, checked_add(held.tensors, held.scalars));
  }
  return total;
}

std::vector<HeldRow> DeepSpeedEngine::held_on_host() const {
  if (!offloads_states()) return {};
  const std::string where = run.parallel.offload_states == OffloadTo::kNvme ? "on NVMe" : "in host memory";
  const Bytes flat = checked_multiply(master_elements(), size_of(DType::kFloat32));
  return {{"float32 partition", flat, "of this rank, " + where},
          {"float32 gradients", flat, "of this rank's partition, " + where},
          {"optimizer states", state_bytes(), "of this rank's partition, " + where}};
}

}  // namespace memcalc
