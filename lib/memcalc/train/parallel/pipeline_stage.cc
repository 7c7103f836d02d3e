#include "memcalc/train/parallel/pipeline_stage.h"

#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/loop.h"

namespace memcalc {

namespace {

constexpr Operator kReceiveBuffer{"pipelining::recv_buffer"};
constexpr Operator kSend{"c10d::send"};

void tell_of_send(Tape& tape, const Tensor& sent) {
  tape.kernels.collective(kSend, Collective::kSend, sent.dtype(), sent.bytes(), 2);
}

}  // namespace

/// What a wrapper is given: the parameters and layers of one stage.
class PipelineStageRun::StageModel : public Model {
 public:
  StageModel(const Model& whole, const ModelStage& stage) {
    for (const Parameter& each : whole.parameters) {
      if (stage.holds(each.name)) parameters.push_back(each);
    }
    for (const auto& layer : whole.linear_layers) {
      if (stage.holds(layer->name)) linear_layers.push_back(layer);
    }
    buffers = whole.buffers;
  }
  [[nodiscard]] ModelOutput forward(const Batch& /*batch*/) override {
    throw Error(ErrorCode::kInternal, "a stage is called with what it receives");
  }
};

PipelineStageRun::PipelineStageRun(Tape& tape, Model& model, const RunSpec& run,
                                   std::unique_ptr<ParallelWrapper> wrapper, const ModelStage& modules,
                                   std::int64_t hidden_size)
    : tape_(tape),
      stages_of_model_(dynamic_cast<PipelineStages&>(model)),
      run_(run),
      wrapper_(std::move(wrapper)),
      model_(std::make_unique<StageModel>(model, modules)),
      modules_(modules),
      hidden_size_(hidden_size) {
  if (wrapper_) wrapper_->wrap(*model_);
}

PipelineStageRun::~PipelineStageRun() = default;

const std::vector<Parameter>& PipelineStageRun::parameters() const { return model_->parameters; }

void PipelineStageRun::next_is_here(PipelineStageRun& next) {
  next_ = &next;
  next.previous_ = this;
}

void PipelineStageRun::clear() {
  while (!output_chunks_.empty()) output_chunks_.pop_back();
  for (Tensor& input : inputs_) input.impl()->grad.reset();
}

// _get_init_p2p_neighbors_ops: what is sent to neighbours and received from them for the first time.
std::array<Tensor, 2> PipelineStageRun::greet_neighbours() const {
  Tensor received = tape_.empty({1}, DType::kFloat32, aten::kZeros);
  return {std::move(received), tape_.empty({}, DType::kFloat32, aten::kTensor)};
}

void PipelineStageRun::prepare_forward(std::int64_t micro_batches) {
  {
    const NoGrad no_grad(tape_.modes);
    const std::int64_t length = run_.sequence_length / run_.parallel.context;
    Tensor sample = modules_.embeds ? tape_.empty({run_.batch_size, length}, DType::kInt64, aten::kZerosLike)
                                    : boundary(aten::kZerosLike);
    const ForwardPass pass(tape_, run_);
    const Tensor output = call(sample);
    sample.reset();
  }
  const auto count = static_cast<std::size_t>(micro_batches);
  for (std::size_t m = 0; m < count && !modules_.embeds; ++m) inputs_.push_back(boundary(kReceiveBuffer));
  outputs_.resize(count);
  losses_.resize(count);
  deferred_.resize(count);
  waiting_outputs_.resize(count);
}

void PipelineStageRun::prepare_backward() {
  while (!modules_.predicts && output_gradients_.size() < outputs_.size()) {
    output_gradients_.push_back(boundary(kReceiveBuffer));
  }
}

void PipelineStageRun::forward(std::size_t m, const PipelineBatch& batch) {
  await_parameters();
  tape_.moment.phase = Phase::kForward;
  const ForwardPass pass(tape_, run_);
  if (!modules_.embeds) tape_.autograd.require_gradient(inputs_[m]);
  Tensor output = call(modules_.embeds ? micro_batch(batch.ids, m) : inputs_[m]);
  if (modules_.predicts) {
    losses_[m] = cross_entropy(view(output, {-1, output.size(-1)}), view(micro_batch(batch.labels, m), {-1}));
    output_chunks_.push_back(tape_.detach(output));  // detach_(), once its backward has run
  } else if (next_ != nullptr) {                     // set_local_fwd_input, in the place of the buffer
    next_->inputs_[m] = tape_.detach(output);
  } else {
    tell_of_send(tape_, output);
  }
  outputs_[m] = std::move(output);
}

void PipelineStageRun::backward(std::size_t m) {
  await_parameters();
  tape_.moment.phase = Phase::kBackward;
  if (wrapper_ && m + 1 == outputs_.size()) wrapper_->before_last_backward();
  Tensor output = std::move(outputs_[m]);
  if (modules_.predicts) {
    backward_from(losses_[m]);
  } else {
    tape_.autograd.backward(output, output_gradients_[m]);
  }
  if (!modules_.embeds) send_gradient(m, std::move(inputs_[m].impl()->grad));
}

void PipelineStageRun::send_gradient(std::size_t m, Tensor gradient) {
  if (previous_ != nullptr) {  // set_local_bwd_input, in the place of the buffer
    previous_->output_gradients_[m] = std::move(gradient);
    return;
  }
  tell_of_send(tape_, gradient);
  sent_gradient_ = std::move(gradient);  // bwd_sends holds it until the next
}

void PipelineStageRun::backward_input(std::size_t m) {
  await_parameters();
  if (modules_.embeds) return;
  tape_.moment.phase = Phase::kBackward;
  Tensor output = std::move(outputs_[m]);
  const Tensor& root = modules_.predicts ? losses_[m] : output;
  const Tensor gradient =
      modules_.predicts ? tape_.empty(root.shape(), root.dtype(), aten::kOnesLike) : output_gradients_[m];
  deferred_[m] = tape_.autograd.backward_input(root, gradient, inputs_[m], own_weights());
  tape_.autograd.forget_history(root);
  if (!modules_.predicts) waiting_outputs_[m] = std::move(output);  // backward_state
  const Tensor& sent = inputs_[m].impl()->grad;                     // it stays there until the step is over
  if (previous_ != nullptr) {
    previous_->output_gradients_[m] = sent;
  } else {
    tell_of_send(tape_, sent);
  }
}

void PipelineStageRun::backward_weight(std::size_t m) {
  if (modules_.embeds) return backward(m);
  await_parameters();
  tape_.moment.phase = Phase::kBackward;
  tape_.autograd.backward_weights(deferred_[m]);
  waiting_outputs_[m].reset();
}

void PipelineStageRun::unshard() {
  if (!wrapper_) return;
  wrapper_->gather_parameters();
  gathering_ = true;
}

// _assert_unsharded
void PipelineStageRun::await_parameters() {
  if (std::exchange(gathering_, false)) wrapper_->await_parameters();
}

void PipelineStageRun::reshard() {
  if (wrapper_) wrapper_->release_parameters();
}

void PipelineStageRun::reduce_gradients() {
  if (wrapper_) wrapper_->reduce_gradients();
  for (const Parameter& each : model_->parameters) {  // scale_grads
    const Bytes bytes = each.tensor.bytes();
    tape_.kernels.add(aten::kDivInPlace, OperatorClass::kElementwise, each.tensor.dtype(),
                      static_cast<double>(each.tensor.elements()), 2.0 * static_cast<double>(bytes));
  }
}

void PipelineStageRun::after_step() {
  if (wrapper_) wrapper_->after_step();
}

void PipelineStageRun::finish() {
  tape_.moment.phase = Phase::kDelete;
  sent_gradient_.reset();
  if (output_chunks_.empty()) return;
  Shape shape = output_chunks_.front().shape();
  shape[0] *= static_cast<std::int64_t>(output_chunks_.size());
  const Tensor merged = tape_.empty(shape, output_chunks_.front().dtype(), aten::kCat);
  for (Tensor& loss : losses_) loss.reset();  // the caller's list
}

/// submod(x): all micro-batches in no_sync(), whose gradients are exchanged after the last backward.
Tensor PipelineStageRun::call(const Tensor& x) {
  if (!wrapper_) return stages_of_model_.forward_stage(modules_, x);
  Batch batch;
  batch.input_ids = x;
  ModelOutput output = wrapper_->forward(
      [this](const Batch& inputs) {
        ModelOutput of_stage;
        of_stage.logits = stages_of_model_.forward_stage(modules_, inputs.input_ids);
        return of_stage;
      },
      batch, false);
  return std::move(output.logits);
}

/// What passes from stage to stage.
Tensor PipelineStageRun::boundary(const Operator& op) const {
  const DType computed = run_.parallel.gathered_dtype().value_or(weights_dtype_of(run_));
  const DType dtype = autocast_dtype(run_.precision).has_value() ? DType::kFloat32 : computed;
  const Shape shape{run_.batch_size, run_.sequence_length / run_.parallel.context, hidden_size_};
  return tape_.empty(shape, dtype, op, Category::kCommunication);
}

/// submod.parameters()
std::vector<Tensor> PipelineStageRun::own_weights() const {
  std::vector<Tensor> weights;
  for (const Parameter& each : model_->parameters) {
    weights.push_back(wrapper_ ? wrapper_->in_module(each.tensor) : each.tensor);
  }
  return weights;
}

/// tensor_split of the whole batch: a view.
Tensor PipelineStageRun::micro_batch(const Tensor& whole, std::size_t m) const {
  return slice(whole, 0, static_cast<std::int64_t>(m) * run_.batch_size, run_.batch_size);
}

}  // namespace memcalc
