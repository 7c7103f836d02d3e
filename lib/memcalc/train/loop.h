// The two training loops: what surrounds the model in a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/kv_cache_size.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/compile/compiled_model.h"
#include "memcalc/train/data/data_steps.h"
#include "memcalc/train/generate.h"
#include "memcalc/train/optimizers/rule.h"
#include "memcalc/train/parallel/wrapper.h"

namespace memcalc {

/// Steps of a run: the blocks that the first leaves behind decide where the second one's go; the third settles.
inline constexpr int kSteps = 3;

/// A micro-batch that is executed, and for how many it stands.
struct ExecutedMicroBatch {
  std::int64_t index = 0;
  std::int64_t stands_for = 1;
};

/// From the second on, all micro-batches of a step ask for the same, so of many the first three and the last are
/// executed: work must not grow with --accum.
[[nodiscard]] std::vector<ExecutedMicroBatch> executed_micro_batches(std::int64_t accumulation_steps);

/// A plain loop with torch's defaults:
///   out = model(**batch); out.loss.backward(); optimizer.step(); optimizer.zero_grad()
/// `wrapper`: null on one GPU.
void run_bare_loop(Tape& tape, Model& model, const RunSpec& run, ParallelWrapper* wrapper = nullptr);

/// The parameters that a rank's optimizer is given: those that train.
[[nodiscard]] ParameterGroup updated_parameters(const Model& model, const ParallelWrapper* wrapper);

/// .grad = None for every parameter, in order.
void zero_grad(const Model& model);

/// The model beside the one that trains, with which a trainer of TRL compares, and what is around it. Null: none.
struct ComparedModel {
  Model* model = nullptr;
  ParallelWrapper* wrapper = nullptr;
  bool model_is_prepared = false;  // the one that trains: before this one is made
};

/// The same model with few layers, on a tape of its own.
struct FewLayers {
  Tape& tape;
  Model& model;
  ComparedModel reference;
};

/// transformers' Trainer with accelerate (transformers 5.17, accelerate 1.15). `tokens`: with which an evaluation
/// generates. `few_layers`: not null where most steps of --lengths may be told by it (step_patterns.h). Returns the
/// steps of --lengths, else none.
/// Throws LayersDiffer.
DataSteps run_trainer_loop(Tape& tape, Model& model, const RunSpec& run, ParallelWrapper* wrapper = nullptr,
                           ComparedModel reference = {}, const SpecialTokens& tokens = {},
                           const FewLayers* few_layers = nullptr);

/// What inference leaves.
struct InferenceCalls {
  std::size_t second_call = 0;             // the event at which it begins
  std::optional<KeyValueCacheSize> cache;  // as its last token left it
};

/// Two calls of model(**batch) or, with --new-tokens, of model.generate(**batch), without gradients.
/// `most_layer_tokens`: train/generate.h, executed_tokens.
[[nodiscard]] InferenceCalls run_inference(Tape& tape, Model& model, const RunSpec& run, std::string_view model_type,
                                           std::int64_t most_layer_tokens = kMostLayerTokens);

/// Around model.forward(): counts its layers, and saves in host memory where the run asks for it.
class ForwardPass {
 public:
  ForwardPass(Tape& tape, const RunSpec& run) : tape_(tape) {
    tape.modes.checkpointable_layers = 0;
    tape.memory.host_copies = {};
    tape.modes.offload_saved = run.trains() && run.training().offload_activations;
  }
  ~ForwardPass() { tape_.modes.offload_saved = false; }
  ForwardPass(const ForwardPass&) = delete;
  ForwardPass& operator=(const ForwardPass&) = delete;

 private:
  Tape& tape_;
};

/// One tensor of a batch.
struct BatchTensor {
  Tensor Batch::*member;  // null: one of Batch::others
  Shape shape;
  DType dtype;
  std::size_t place = 0;  // among these

  [[nodiscard]] Tensor& in(Batch& batch) const { return member != nullptr ? batch.*member : batch.others[place]; }
};

/// What a batch of --bs samples is made of, in the order in which it is moved.
[[nodiscard]] std::vector<BatchTensor> batch_tensors(const Model& model, const RunSpec& run);
/// What of them CUDA graphs copy.
[[nodiscard]] std::vector<compile::GraphInput> graph_inputs(const Model& model, const RunSpec& run);

/// Room for those of `tensors` that are no members of a batch.
void make_room_for_others(const std::vector<BatchTensor>& tensors, Batch& batch);

/// A batch of --bs sequences on the card, each tensor requested by `op`.
[[nodiscard]] Batch make_batch(Tape& tape, const Model& model, const RunSpec& run, const Operator& op);

/// The 16-bit type of an amp precision.
[[nodiscard]] std::optional<DType> autocast_dtype(Precision precision);

/// loss.backward(): starts from torch.ones_like(loss).
void backward_from(const Tensor& loss);

}  // namespace memcalc
