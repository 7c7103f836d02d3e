#include "memcalc/train/parallel/context_parallel.h"

#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"

namespace memcalc {

namespace {}  // namespace

ContextParallelism::ContextParallelism(Tape& tape, const RunSpec& run, std::int64_t rank,
                                       std::unique_ptr<ParallelWrapper> inner)
    : ParallelWrapper(tape, run, rank), inner_(std::move(inner)) {
  tape.modes.context = {.ranks = run.parallel.context,
                        .rank = rank / run.parallel.tensor % run.parallel.context,
                        .rotates = run.parallel.context_type == ContextParallel::kRing};
}

void ContextParallelism::wrap(Model& model) {
  if (inner_) {
    inner_->wrap(model);
    whole_shapes = std::move(inner_->whole_shapes);
    assumptions = std::move(inner_->assumptions);
  }
  if (run.parallel.data_parallel == DataParallel::kNone) {
    assumptions.emplace_back(
        "no rank hears of the others' gradients: torch's context_parallel leaves that to DDP or FSDP (--parallel)");
  }
}

// context_parallel(mesh, buffers=[input_ids, labels]): the buffers are cloned, rearranged, and resized in place to this
// rank's part; the clones and the parts stay until the context is left.
Batch ContextParallelism::enter(const Batch& batch) {
  const std::int64_t ranks = run.parallel.context;
  Batch local = batch;
  std::vector<Tensor*> buffers;
  for (Tensor* each : {&local.input_ids, &local.labels}) {
    if (each->defined() && each->rank() == 2) buffers.push_back(each);
  }
  const auto like = [&](const Tensor& x, std::int64_t length, const Operator& op) {
    return tape.empty({x.size(0), length}, x.dtype(), op, Category::kInputs);
  };
  const std::int64_t sequence = buffers.front()->size(1);
  for (const Tensor* each : buffers) held_.push_back(like(*each, sequence, aten::kClone));
  Tensor indices = tape.empty({1, sequence}, DType::kInt32, aten::kTensor);
  for (const Tensor* each : buffers) {
    Tensor balanced = like(*each, sequence, aten::kGather);
    held_.push_back(like(*each, sequence / ranks, aten::kSplit));
    balanced.reset();
  }
  indices.reset();
  Tensor part;
  for (Tensor* each : buffers) {
    part.reset();  // the loop's variable is bound to the next shard before that is cloned
    part = like(*each, sequence / ranks, aten::kClone);
    const Shape shape{each->size(0), sequence / ranks};
    *each = tape.alias(*each, shape, contiguous_strides(shape), false);
  }
  held_.push_back(std::move(part));
  return local;
}

void ContextParallelism::leave() {
  for (Tensor& each : held_) each.reset();
  held_.clear();
}

ModelOutput ContextParallelism::forward(const ModuleForward& module, const Batch& batch, bool sync) {
  const Batch local = enter(batch);
  tape.autograd.at_end_of_backward([this] { leave(); });
  return inner_ ? inner_->forward(module, local, sync) : module(local);
}

bool ContextParallelism::updates(const Parameter& parameter) const { return !inner_ || inner_->updates(parameter); }

ParameterGroup ContextParallelism::optimizer_parameters(const Model& model) const {
  return inner_ ? inner_->optimizer_parameters(model) : ParallelWrapper::optimizer_parameters(model);
}

void ContextParallelism::after_step() {
  if (inner_) inner_->after_step();
}

}  // namespace memcalc
