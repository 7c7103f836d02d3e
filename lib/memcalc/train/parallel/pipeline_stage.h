// torch.distributed.pipelining's PipelineStage on one rank (stage.py: forward_one_chunk, backward_one_chunk and what
// they keep): buffers of what is received, outputs and gradients until they have been sent or used. Covered by
// tests/measured/parallel_rows_test.cc and tests/measured/parallel_stream_test.cc.
// MIRRORS(torch, "distributed/pipelining/stage.py", "2.11.0")
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/models/pipeline_stages.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/parallel/wrapper.h"

namespace memcalc {

/// The whole batch of a step on this rank; a micro-batch is a view of it.
struct PipelineBatch {
  Tensor ids, labels;
};

class PipelineStageRun {
 public:
  /// Of `model`'s modules those that `modules` names, with `wrapper` around them (null where they are called
  /// themselves).
  PipelineStageRun(Tape& tape, Model& model, const RunSpec& run, std::unique_ptr<ParallelWrapper> wrapper,
                   const ModelStage& modules, std::int64_t hidden_size);
  ~PipelineStageRun();
  PipelineStageRun(const PipelineStageRun&) = delete;
  PipelineStageRun& operator=(const PipelineStageRun&) = delete;

  /// Its parameters, as the optimizer is given them, and their whole shapes where the wrapper replaced them.
  [[nodiscard]] const std::vector<Parameter>& parameters() const;
  [[nodiscard]] const ParallelWrapper* wrapper() const { return wrapper_.get(); }

  /// A neighbour in the pipeline on the same rank, as in a V: outputs and gradients pass as they are.
  void next_is_here(PipelineStageRun& next);

  /// clear_runtime_states
  void clear();
  /// Whether a first step has made what follows.
  [[nodiscard]] bool is_prepared() const { return !outputs_.empty(); }
  /// Two numbers that live until the stage is prepared.
  [[nodiscard]] std::array<Tensor, 2> greet_neighbours() const;
  /// _prepare_forward_infra and _prepare_backward_infra: the shapes are found by running the stage; then a buffer is
  /// made for each micro-batch's input, and for its output's gradient.
  void prepare_forward(std::int64_t micro_batches);
  void prepare_backward();

  void forward(std::size_t m, const PipelineBatch& batch);
  void backward(std::size_t m);
  /// backward_one_chunk(full_backward=False): the first stage sends no gradient, so it computes none yet.
  void backward_input(std::size_t m);
  /// backward_weight_one_chunk
  void backward_weight(std::size_t m);

  /// FSDP2's unshard() of all modules, reshard(), perform_reduce_grad.
  void unshard();
  void reshard();
  void reduce_gradients();
  /// After optimizer.step().
  void after_step();

  /// Nothing names the gradient that was sent any longer.
  void let_go_of_sent() { sent_gradient_.reset(); }
  /// The locals of the schedule's step die; return_outputs: the micro-batches' outputs, put together.
  void finish();

 private:
  class StageModel;

  [[nodiscard]] Tensor call(const Tensor& x);
  [[nodiscard]] Tensor boundary(const Operator& op) const;
  [[nodiscard]] std::vector<Tensor> own_weights() const;
  [[nodiscard]] Tensor micro_batch(const Tensor& whole, std::size_t m) const;
  void await_parameters();
  void send_gradient(std::size_t m, Tensor gradient);

  Tape& tape_;
  PipelineStages& stages_of_model_;
  const RunSpec& run_;
  std::unique_ptr<ParallelWrapper> wrapper_;
  std::unique_ptr<StageModel> model_;
  ModelStage modules_;
  std::int64_t hidden_size_;
  PipelineStageRun* next_ = nullptr;
  PipelineStageRun* previous_ = nullptr;
  bool gathering_ = false;                         // unshard() was called, and nothing has waited for it yet
  std::vector<Tensor> inputs_, output_gradients_;  // args_recv_info, grad_recv_info
  std::vector<Tensor> outputs_;                    // fwd_cache
  std::vector<Tensor> output_chunks_;              // the last stage's, until the next step begins
  std::vector<Tensor> losses_;
  std::vector<std::vector<DeferredNode>> deferred_;  // zero bubble: param_groups of a micro-batch
  std::vector<Tensor> waiting_outputs_;
  Tensor sent_gradient_;
};

}  // namespace memcalc
