#include "memcalc/train/parallel/tensor_parallel.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "memcalc/base/error.h"
#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/symbolic/layout.h"

namespace memcalc {

namespace {

constexpr Operator kScatter{"aten::empty_like"};

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

/// distribute_tensor(param, mesh, [Shard(dim)]): a tensor of its own, into which the shard is scattered.
void keep_shard(Tape& tape, const Tensor& parameter, int dim, std::int64_t ranks) {
  Shape shape = parameter.shape();
  if (shape[dim] % ranks != 0) {
    throw Error(ErrorCode::kUnsupported, "tp " + std::to_string(ranks) + " does not divide the " +
                                             std::to_string(shape[dim]) + " rows or columns of a weight");
  }
  shape[dim] /= ranks;
  Tensor shard = tape.empty(shape, parameter.dtype(), kScatter, Category::kWeights);
  tape.replace_parameter(parameter, shard);
}

}  // namespace

void TensorParallel::wrap(Model& model) {
  const std::int64_t ranks = run.parallel.tensor;
  for (const Parameter& parameter : model.parameters) whole_shapes.push_back(parameter.tensor.shape());
  bool any = false;
  for (const auto& layer : model.linear_layers) {
    layer->split = split_of(layer->name);
    layer->ranks = ranks;
    if (layer->split == LinearSplit::kNone) {
      if (!in_layer(layer->name)) continue;
      throw Error(ErrorCode::kUnsupported,
                  "tp: no plan is modelled that splits " + layer->name +
                      "; accepted: families with q_proj, k_proj, "
                      "v_proj, o_proj, gate_proj, up_proj, down_proj (llama, mistral, qwen2, qwen3, gemma, olmo2)");
    }
    any = true;
    const bool columns = layer->split == LinearSplit::kColumns;
    if (!columns && layer->last_parameter > layer->first_parameter) {
      throw Error(ErrorCode::kUnsupported, "tp: the bias of " + layer->name + ", split by rows, is not modelled");
    }
    keep_shard(tape, model.parameters[layer->first_parameter].tensor, columns ? 0 : 1, ranks);
    if (layer->last_parameter > layer->first_parameter) {
      keep_shard(tape, model.parameters[layer->last_parameter].tensor, 0, ranks);
    }
  }
  if (!any) throw Error(ErrorCode::kUnsupported, "tp: this model has no linear layers that could be split");
}

ModelOutput TensorParallel::forward(const ModuleForward& module, const Batch& batch, bool /*sync*/) {
  return module(batch);
}

}  // namespace memcalc
