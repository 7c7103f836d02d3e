#include "memcalc/train/parallel/tensor_parallel.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/symbolic/layout.h"

namespace memcalc {

namespace {

constexpr Operator kScatter{"aten::empty_like"}, kContiguous{"aten::clone"};

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
    throw Error(ErrorCode::kUnsupported, "tp " + std::to_string(ranks) + " does not divide the " +
                                             std::to_string(shape[dim]) + " rows or columns of a weight");
  }
  shape[dim] /= ranks;
  std::vector<Tensor> copies;
  for (std::int64_t i = 0; dim > 0 && i < ranks; ++i) {
    copies.push_back(tape.empty(shape, whole.dtype(), kContiguous, Category::kWeights));
  }
  Tensor shard = tape.empty(shape, whole.dtype(), kScatter, Category::kWeights);
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

void split_layers(Tape& tape, Model& model, std::int64_t ranks) {
  std::unordered_map<std::string_view, const Tensor*> parameters;  // a stage of a pipeline has some of the layers
  for (const Parameter& each : model.parameters) {
    parameters.emplace(each.name, &each.tensor);
    if (each.name.find(".experts.") != std::string::npos) {
      throw Error(ErrorCode::kUnsupported, "tp: the plan that splits experts is not modelled; accepted: --ep");
    }
  }
  bool any = false;
  for (const auto& layer : model.linear_layers) {
    layer->split = split_of(layer->name);
    layer->ranks = ranks;
    if (layer->split == LinearSplit::kNone) {
      if (!in_layer(layer->name)) continue;
      throw Error(ErrorCode::kUnsupported,
                  "tp: no plan is modelled that splits " + layer->name +
                      "; accepted: families with q_proj, k_proj, "
                      "v_proj, o_proj, gate_proj, up_proj, down_proj (llama, mistral, qwen2, qwen3, gemma)");
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
      throw Error(ErrorCode::kUnsupported, "tp: " + norm_name +
                                               " is over all heads, and a plan that gathers them for it "
                                               "is not modelled; accepted: norms of one head, or none");
    }
    if (!columns && bias != parameters.end()) {
      throw Error(ErrorCode::kUnsupported, "tp: the bias of " + layer->name + ", split by rows, is not modelled");
    }
    std::vector<Split> splits = {{weight->second, columns ? 0 : 1}};
    if (bias != parameters.end()) splits.push_back({bias->second, 0});
    keep_shards(tape, splits, ranks);
  }
  if (!any) throw Error(ErrorCode::kUnsupported, "tp: this model has no linear layers that could be split");
}

TensorParallel::TensorParallel(Tape& tape, const RunSpec& run, std::int64_t rank,
                               std::unique_ptr<ParallelWrapper> inner)
    : ParallelWrapper(tape, run, rank), inner_(std::move(inner)) {}

void TensorParallel::wrap(Model& model) {
  for (const Parameter& parameter : model.parameters) whole_shapes.push_back(parameter.tensor.shape());
  split_layers(tape, model, run.parallel.tensor);
  if (!inner_) return;
  inner_->wrap(model);
  assumptions = std::move(inner_->assumptions);
  assumptions.emplace_back("layers are split over tp first, then " +
                           std::string(run.parallel.data_parallel == DataParallel::kFsdp2
                                           ? "sharded: fully_shard on the other dimension of the mesh"
                                           : "wrapped: DistributedDataParallel on the other dimension of the mesh"));
}

ModelOutput TensorParallel::forward(const ModuleForward& module, const Batch& batch, bool sync) {
  return inner_ ? inner_->forward(module, batch, sync) : module(batch);
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

}  // namespace memcalc
