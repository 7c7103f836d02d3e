// DeepSpeedZeroOptimizer_Stage3.step() (deepspeed/runtime/zero/stage3.py), and what a rank holds between steps.
// MIRRORS(deepspeed, "runtime/zero/stage3.py", "0.19.8")
#include <cstddef>
#include <string>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/train/optimizers/lists.h"
#include "memcalc/train/parallel/deepspeed_zero3.h"

namespace memcalc {

namespace {

constexpr Operator kOverflow{"deepspeed::has_overflow"};

}  // namespace

bool DeepSpeedZero3::step() {
  record_host_work(tape, HostWork::kZeroStepped, static_cast<std::int64_t>(params_.size()));
  coordinator_->release_all();
  streams_are_done();
  if (dtype == DType::kFloat16) check_overflow();
  if (overflows()) {
    global_norm_.reset();
    return true;
  }
  if (offloads_states()) {
    const Tensor total = scalar(tape, DType::kFloat32, aten::kNorm);
    tape.kernels.synchronize(aten::kNorm);
    step_on_host();
  } else {
    for (const std::vector<std::int64_t>& group : sub_groups_) take_norm(group);
  }
  for (std::size_t i = 0; i < sub_groups_.size() && !offloads_states(); ++i) step_sub_group(i);
  gather_persistent();
  return true;
}

// has_overflow: isinf through a copy of absolute values, isnan through a comparison.
void DeepSpeedZero3::check_overflow() {
  const OnStream on_reduction(tape.moment, reduction_stream());
  if (!offloads_states()) {
    {
      Tensor absolute = tape.empty({part_elements_}, dtype, kOverflow);
      const Tensor infinite = tape.empty({part_elements_}, DType::kBool, kOverflow);
      absolute.reset();
      const Tensor any = scalar(tape, DType::kBool, kOverflow);
    }
    const Tensor not_numbers = tape.empty({part_elements_}, DType::kBool, kOverflow);
    const Tensor any = scalar(tape, DType::kBool, kOverflow);
  }
  const Tensor flag = scalar(tape, DType::kUInt8, kOverflow);
  tape.kernels.synchronize(kOverflow);
}

void DeepSpeedZero3::step_sub_group(std::size_t i) {
  const MasterPart& part = masters[i];
  const bool flattens = sub_groups_[i].size() > 1;
  Tensor flat = flattens ? tape.empty({part.elements}, dtype, aten::kCat, Category::kGradients) : gradients_;
  if (flattens) pass_kernel(part.elements, dtype);
  part.parameter.tensor.impl()->grad = widened(flat, part.elements);
  flat.reset();
  scale_gradients(part.elements);
  step_part(i);
  pass_kernel(part.elements, DType::kFloat32, dtype);  // _reassign_or_swap_out_partitioned_parameters
  part.parameter.tensor.impl()->grad.reset();
}

// --- what is held between steps

Bytes DeepSpeedZero3::frozen_bytes() const {
  Bytes total = 0;
  for (const SharedParameter& param : params_) {
    if (!param.trains) total = checked_add(total, bytes_of_part(param));
  }
  return total;
}

Bytes DeepSpeedZero3::persistent_bytes() const {
  Bytes total = 0;
  for (const SharedParameter& param : params_) {
    if (param.persists) total = checked_add(total, checked_multiply(bytes_of_part(param), ranks));
  }
  return total;
}

std::vector<HeldRow> DeepSpeedZero3::held() const {
  const Bytes frozen = frozen_bytes();
  const std::string trained =
      frozen > 0 ? "each adapter in " + std::string(name_of(trained_dtype_)) : "each parameter " + in_dtype();
  std::vector<HeldRow> rows;
  if (!offloads_parameters()) {
    if (frozen > 0) rows.push_back({"frozen weights", frozen, "this rank's part of each, padded"});
    rows.push_back({"weights", weights_.bytes(), "this rank's part of " + trained + ", padded"});
  }
  if (ranks > 1 || offloads_parameters()) {
    rows.push_back({"persistent parameters", persistent_bytes(),
                    "whole, those of at most " + std::to_string(run.parallel.deepspeed().param_persistence_threshold) +
                        " elements"});
  }
  if (!offloads_states()) rows.push_back({"gradients", gradients_.bytes(), "of the parts, always there"});
  rows.push_back({"gradient bucket", bucket_.bytes(), "reduce_bucket_size elements, always there"});
  if (!offloads_states()) {
    const Bytes copy = checked_multiply(master_elements(), size_of(DType::kFloat32));
    rows.push_back({"optimizer states", checked_add(copy, state_bytes()),
                    "a float32 copy of the parts and the optimizer's states of it"});
  }
  return rows;
}

std::vector<HeldRow> DeepSpeedZero3::held_on_host() const {
  std::vector<HeldRow> rows = DeepSpeedEngine::held_on_host();
  if (offloads_states()) rows.push_back({"gradients", sizes(part_elements_), "of the parts, " + in_dtype()});
  if (offloads_parameters()) {
    const Bytes trained = checked_multiply(part_elements_, size_of(trained_dtype_));
    rows.push_back(
        {"weights", checked_add(frozen_bytes(), trained), "this rank's part of each parameter, " + in_dtype()});
  }
  return rows;
}

}  // namespace memcalc
