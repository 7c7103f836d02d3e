#include "memcalc/train/parallel/tensor_parallel.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"

namespace memcalc {

namespace {

constexpr std::string_view kColumns[] = {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"};
constexpr std::string_view kRows[] = {"o_proj", "down_proj"};

template <std::size_t kSize>
bool holds(const std::string_view (&names)[kSize], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

LinearSplit split_of(std::string_view name) {
  const std::string_view leaf = name.substr(name.rfind('.') + 1);
  if (holds(kColumns, leaf)) return LinearSplit::kColumns;
  return holds(kRows, leaf) ? LinearSplit::kRows : LinearSplit::kNone;
}

/// "model.layers.3.mlp.up_proj", not "lm_head".
bool in_layer(std::string_view name) { return name.find_first_of("0123456789") != std::string_view::npos; }

}  // namespace

namespace {

/// distribute_tensor: chunks along another dimension than the first are copied to be contiguous, all of them, before
/// the scatter hands out one each.
Tensor scattered(Tape& tape, const Tensor& whole, int dim, std::int64_t ranks) {
  Shape shape = whole.shape();
  if (shape[dim] % ranks != 0) {
    throw refusal(rules::kTpDivides, {std::to_string(ranks), std::to_string(shape[dim])});
  }
  shape[dim] /= ranks;
  std::vector<Tensor> copies;
  for (std::int64_t i = 0; dim > 0 && i < ranks; ++i) {
    copies.push_back(tape.empty(shape, whole.dtype(), aten::kClone, Category::kWeights));
  }
  Tensor shard = tape.empty(shape, whole.dtype(), aten::kEmptyLike, Category::kWeights);
  while (!copies.empty()) copies.pop_back();
  return shard;
}

}  // namespace

void keep_shards(Tape& tape, const std::vector<Split>& splits, std::int64_t ranks) {
  std::vector<Tensor> shards;
  for (const Split& split : splits) shards.push_back(scattered(tape, *split.parameter, split.dim, ranks));
  // named_parameters() remembers what it has seen, so that all live until its loop ends.
  for (std::size_t i = 0; i < splits.size(); ++i) tape.replace_parameter(*splits[i].parameter, shards[i]);
}

namespace {

/// "model.layers.3" of "model.layers.3.mlp.up_proj".
std::string_view layer_of(std::string_view name) {
  return name.substr(0, name.find('.', name.find_first_of("0123456789")));
}

/// As the plan of a layer lists its modules: in the order in which they run, or those split by columns first.
std::vector<FineTunedLinear*> in_order_of_plan(const Model& model, bool columns_first) {
  std::vector<FineTunedLinear*> order, rows;
  std::string_view current;
  const auto flush = [&] {
    order.insert(order.end(), rows.begin(), rows.end());
    rows.clear();
  };
  for (const auto& each : model.linear_layers) {
    if (layer_of(each->name) != current) flush();
    current = layer_of(each->name);
    (columns_first && split_of(each->name) == LinearSplit::kRows ? rows : order).push_back(each.get());
  }
  flush();
  return order;
}

/// The model's linear layers and their parameters are this rank's part.
void split_layers(Tape& tape, Model& model, std::int64_t ranks, bool columns_first) {
  std::unordered_map<std::string_view, const Tensor*> parameters;  // a stage of a pipeline has some of the layers
  for (const Parameter& each : model.parameters) {
    parameters.emplace(each.name, &each.tensor);
    if (each.name.find(".experts.") != std::string::npos) throw refusal(rules::kTpExperts);
  }
  bool any = false;
  for (FineTunedLinear* const layer : in_order_of_plan(model, columns_first)) {
    layer->split = split_of(layer->name);
    layer->ranks = ranks;
    if (layer->split == LinearSplit::kNone) {
      if (!in_layer(layer->name)) continue;
      throw refusal(rules::kTpPlan, {layer->name});
    }
    any = true;
    const std::string weight_name = layer->name + ".weight", bias_name = layer->name + ".bias";
    const auto weight = parameters.find(weight_name), bias = parameters.find(bias_name);
    if (weight == parameters.end()) continue;
    const bool columns = layer->split == LinearSplit::kColumns;
    // OLMo 2 normalises all heads of a token together.
    const std::string norm_name = layer->name.substr(0, layer->name.rfind('_')) + "_norm.weight";  // "….q_norm.weight"
    const auto norm = parameters.find(norm_name);
    if (norm != parameters.end() && norm->second->elements() == weight->second->size(0)) {
      throw refusal(rules::kTpNorm, {norm_name});
    }
    if (!columns && bias != parameters.end()) throw refusal(rules::kTpRowBias, {layer->name});
    std::vector<Split> splits = {{weight->second, columns ? 0 : 1}};
    if (bias != parameters.end()) splits.push_back({bias->second, 0});
    keep_shards(tape, splits, ranks);
    if (layer->lora_a.defined()) {
      keep_shards(tape, {{columns ? &layer->lora_b : &layer->lora_a, columns ? 0 : 1}}, ranks);
    }
  }
  if (!any) throw refusal(rules::kTpLayers);
}

/// parallelize_module of the whole model: RowwiseParallel of the embedding, SequenceParallel of the norms,
/// ColwiseParallel of the head; then the layers.
void split_whole_model(Tape& tape, Model& model, const Parallel& parallel) {
  for (const Parameter& each : model.parameters) {
    const std::string_view name = each.name;
    if (each.is_embedding) {
      keep_shards(tape, {{&each.tensor, 0}}, parallel.tensor);
      tape.autograd.accept_whole_gradient(each.tensor);
    } else if (name.ends_with("norm.weight")) {
      each.tensor.impl()->has_partial_gradient = true;
    } else if (name == "lm_head.weight") {
      keep_shards(tape, {{&each.tensor, 0}}, parallel.tensor);
    }
  }
  split_layers(tape, model, parallel.tensor, true);
  for (const auto& layer : model.linear_layers) {
    const bool is_head = layer->split == LinearSplit::kNone;
    layer->sequence = is_head ? SequencePlan::kHead : SequencePlan::kLayer;
    if (is_head) layer->split = LinearSplit::kColumns;
  }
  tape.modes.sequence_split = {.ranks = parallel.tensor, .loss_parallel = parallel.torch().loss_parallel};
}

}  // namespace

void split_model(Tape& tape, Model& model, const Parallel& parallel) {
  if (parallel.sequence_parallel) return split_whole_model(tape, model, parallel);
  split_layers(tape, model, parallel.tensor, false);
}

TensorParallel::TensorParallel(Tape& tape, const RunSpec& run, std::int64_t rank,
                               std::unique_ptr<ParallelWrapper> inner)
    : ParallelWrapper(tape, run, rank), inner_(std::move(inner)) {}

void TensorParallel::wrap(Model& model) {
  for (const Parameter& parameter : model.parameters) whole_shapes.push_back(parameter.tensor.shape());
  if (run.parallel.sequence_parallel) {
    position_ids_ = tape.empty({1, run.sequence_length}, DType::kInt64, aten::kArange, Category::kInputs);
  }
  split_model(tape, model, run.parallel);
  if (run.parallel.sequence_parallel) {
    assumptions.emplace_back(
        "the plan of torch's tutorial and torchtitan on transformers' modules: SequenceParallel norms, RowwiseParallel "
        "embedding, ColwiseParallel head, each distributed by itself (tied weights are so no longer); position_ids are "
        "given, as the model sees a part of the sequence");
  }
  if (!inner_) return;
  inner_->wrap(model);
  assumptions.insert(assumptions.begin(), inner_->assumptions.begin(), inner_->assumptions.end());
  assumptions.emplace_back("layers are split over tp first, then " +
                           std::string(run.parallel.data_parallel == DataParallel::kFsdp2
                                           ? "sharded: fully_shard on the other dimension of the mesh"
                                           : "wrapped: DistributedDataParallel on the other dimension of the mesh"));
}

ModelOutput TensorParallel::forward(const ModuleForward& module, const Batch& batch, bool sync) {
  if (!position_ids_.defined()) return inner_ ? inner_->forward(module, batch, sync) : module(batch);
  Batch with_positions = batch;
  with_positions.position_ids = position_ids_;
  return inner_ ? inner_->forward(module, with_positions, sync) : module(with_positions);
}

ParameterGroup TensorParallel::optimizer_parameters(const Model& model) const {
  return inner_ ? inner_->optimizer_parameters(model) : ParallelWrapper::optimizer_parameters(model);
}

void TensorParallel::after_step() {
  if (inner_) inner_->after_step();
}

void TensorParallel::before_last_backward() {
  if (inner_) inner_->before_last_backward();
}

void TensorParallel::reduce_gradients() {
  if (inner_) inner_->reduce_gradients();
}

void TensorParallel::gather_parameters() {
  if (inner_) inner_->gather_parameters();
}

void TensorParallel::await_parameters() {
  if (inner_) inner_->await_parameters();
}

void TensorParallel::release_parameters() {
  if (inner_) inner_->release_parameters();
}

}  // namespace memcalc
