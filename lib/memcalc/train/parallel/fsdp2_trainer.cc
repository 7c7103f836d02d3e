// What accelerate makes of a model for the Trainer: accelerate/utils/fsdp_utils.py, fsdp2_prepare_model (1.15). The
// layers of _no_split_modules are units; so is an embedding whose weight is its own; final norm and head are one, with
// the embedding in it where they share its weight; the root holds what is left.
// MIRRORS(accelerate, "utils/fsdp_utils.py", "1.15.0")
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/train/fine_tuning.h"
#include "memcalc/train/parallel/fsdp2.h"

namespace memcalc {

namespace {

constexpr Operator kMove{"fsdp::_move_states_to_device"};
constexpr Operator kBroadcast{"c10d::broadcast_"}, kScatter{"c10d::scatter_"};
constexpr Operator kFunctionalGather{"_c10d_functional::all_gather_into_tensor"};

/// "model" and "norm" of "model.norm.weight": how many names stand before the parameter's own.
std::int64_t depth_of(std::string_view name) {
  std::int64_t dots = 0;
  for (const char each : name) dots += each == '.' ? 1 : 0;
  return dots;
}

/// get_output_embeddings() (modeling_utils.py, EmbeddingAccessMixin): a classifier has none.
bool has_output_embeddings(const RunSpec& run) {
  return run.task == Task::kCausalLm || run.task == Task::kMaskedLm || run.task == Task::kSeq2Seq;
}

/// …ForCausalLM.lm_head
bool is_head(const Parameter& parameter, const RunSpec& run) {
  return has_output_embeddings(run) && depth_of(parameter.name) == 1;
}

/// _find_final_norm: a norm among the children of the base model (GPT-2's is its ln_f), which peft's model does not
/// show it.
bool is_final_norm(const Parameter& parameter, const RunSpec& run) {
  if (run.fine_tuning.lora || parameter.is_embedding || depth_of(parameter.name) != 2) return false;
  return parameter.name.find("norm") != std::string::npos || parameter.name.starts_with("transformer.ln_f.");
}

/// Tensors without storage take the place of what they had.
void drop_storage(Tape& tape, const Tensor& tensor) {
  const Tensor nothing = tape.empty({0}, tensor.dtype(), aten::kToCopy);
  std::swap(tensor.impl()->block, nothing.impl()->block);
}

}  // namespace

// from_pretrained leaves the model in host memory, where accelerate turns what trains into float32.
void Fsdp2::move_to_host(Model& model) {
  for (const Parameter& parameter : model.parameters) drop_storage(tape, parameter.tensor);
  for (const Tensor& buffer : model.buffers) drop_storage(tape, buffer);
  tape.memory.empty_cache();
  const OnMetaDevice on_meta(tape.memory);
  for (const Parameter& parameter : model.parameters) {
    const bool upcasts = tape.behaviors.fsdp2_upcasts == Fsdp2Upcast::kTrainable && parameter.tensor.requires_grad();
    if (param_dtype_ && upcasts) tape.convert(parameter.tensor, DType::kFloat32, aten::kToCopy);
  }
}

Bytes Fsdp2::note_packed_on_host(const Model& model) {
  std::unordered_map<std::string, QuantizedWeight*> by_name;
  for (const auto& layer : model.linear_layers) by_name.emplace(layer->name + ".weight", &layer->quantized);
  Bytes whole = 0;
  for (const Parameter& each : model.parameters) {
    if (!is_packed(each.tensor)) {
      whole = checked_add(whole, each.tensor.bytes());
      continue;
    }
    QuantizedWeight* weight = by_name.at(each.name);
    packed_on_host_.emplace(each.tensor.impl(), weight);
    whole = checked_add(whole, ceil_div(each.tensor.elements(), 2));
    for (const Tensor& scale : weight->scales) whole = checked_add(whole, scale.bytes());
  }
  return whole;
}

void Fsdp2::move_to_card(const std::vector<Parameter*>& parameters) {
  if (is_sent_by_rank_0() || (quantized_ && !offloads())) return;
  for (const Parameter* each : parameters) {
    if (is_packed(each->tensor)) {
      move_packed_to_card(each->tensor);
      continue;
    }
    Tensor moved = tape.empty(each->tensor.shape(), each->tensor.dtype(), kMove, Category::kWeights);
    tape.take_storage(each->tensor, moved);
  }
}

// _move_states_to_device calls Params4bit.to, which moves the quantisation state first (bitsandbytes 0.50,
// QuantState.to): codes, scales of blocks, and of scales that are quantised again the offset, their own scales and
// codes. FSDP2 knows nothing of the state, so it stays on the card.
void Fsdp2::move_packed_to_card(const Tensor& parameter) {
  QuantizedWeight& weight = *packed_on_host_.at(parameter.impl());
  const auto move = [&](const Tensor& tensor, std::int64_t elements) {
    Tensor moved = tape.empty({elements}, tensor.dtype(), kMove, Category::kWeights);
    tape.take_storage(tensor, moved);
  };
  // quantize() leaves {codes, scales} or {codes, offset, scales of scales, scales, codes of scales}.
  constexpr std::array<std::size_t, 2> kOnce{0, 1};
  constexpr std::array<std::size_t, 5> kTwice{0, 3, 1, 2, 4};
  const bool twice = weight.kind == Quantization::kNf4Double;
  for (const std::size_t i : twice ? std::span<const std::size_t>(kTwice) : std::span<const std::size_t>(kOnce)) {
    move(weight.scales.at(i), weight.scales.at(i).elements());
  }
  move(parameter, ceil_div(parameter.elements(), 2));
}

/// Params4bit of bytes are ignored_params: each rank keeps them whole.
void Fsdp2::leave_out_packed_bytes(std::vector<Parameter*>& unit) const {
  if (run.fine_tuning.quant_storage) return;
  std::erase_if(unit, [this](const Parameter* each) { return is_packed(each->tensor); });
}

// Of a floating type they are sharded as what they are stored as: [bytes / 2, 1] bfloat16.
Fsdp2::ShardedParameter Fsdp2::shard_packed(Parameter& parameter) {
  const Tensor& whole = parameter.tensor;
  const DType storage = *run.fine_tuning.quant_storage;
  const std::int64_t rows = ceil_div(ceil_div(whole.elements(), 2), size_of(storage));
  ShardedParameter param;
  param.unsharded = whole;
  param.shard_elements = ceil_div(rows, shards_);
  if (offloads()) tape.memory.scratch(param.shard_elements * size_of(storage), aten::kNewZeros);
  {
    const OnMetaDevice on_meta(tape.memory, offloads());
    param.sharded = tape.parameter({param.shard_elements, 1}, storage, false);
  }
  param.gathered = tape.empty_resizable({param.shard_elements * shards_}, storage);
  drop_storage(tape, whole);
  Tensor view = tape.alias(param.gathered, whole.shape(), whole.strides(), false);
  tape.take_storage(whole, view);
  parameter.tensor = param.sharded;
  return param;
}

void Fsdp2::shard_as_accelerate(Model& model, Units& units) {
  quantized_ = run.fine_tuning.quantization != Quantization::kNone;
  const bool is_on_card = quantized_ && !packs_on_host(run);
  const Bytes whole_on_host = packs_on_host(run) ? note_packed_on_host(model) : 0;
  std::vector<Parameter*> embedding, norm, head, rest;
  const bool wraps_ends = tape.behaviors.fsdp2_wraps_ends;
  if (!wraps_ends) rest = units.rest;  // accelerate before 1.14
  for (Parameter* each : wraps_ends ? units.rest : std::vector<Parameter*>()) {
    const bool is_input = embedding.empty() && each->is_embedding;
    std::vector<Parameter*>& unit = is_input                    ? embedding
                                    : is_head(*each, run)       ? head
                                    : is_final_norm(*each, run) ? norm
                                                                : rest;
    unit.push_back(each);
  }
  const bool has_head = has_output_embeddings(run);
  const auto is_weight = [](const Parameter* each) { return each->name.ends_with(".weight"); };
  const bool is_tied = has_head && std::none_of(head.begin(), head.end(), is_weight);
  std::vector<Parameter*> tail = norm;
  if (is_tied) tail.insert(tail.end(), embedding.begin(), embedding.end());
  tail.insert(tail.end(), head.begin(), head.end());
  const std::size_t ends = !wraps_ends ? 0 : (is_tied ? 0 : 1) + (tail.empty() ? 0 : 1);
  groups_.resize(layers_ + ends + 1);
  if (!quantized_) move_to_host(model);
  for (std::size_t i = 0; i < layers_; ++i) {
    leave_out_packed_bytes(units.layers[i]);
    move_to_card(units.layers[i]);
    shard(groups_[i], units.layers[i], true);
  }
  std::vector<Tensor> whole;  // input_weight and output_weight, variables that last until the function returns
  const auto make_unit = [&](Group& group, std::vector<Parameter*>& parameters) {
    for (const Parameter* each : parameters) unit_of_[each->tensor.impl()] = &group;
    move_to_card(parameters);
    for (const Parameter* each : parameters) {
      const bool is_held = each->is_embedding || is_head(*each, run);
      if (is_held && each->name.ends_with(".weight")) whole.push_back(tape.detach(each->tensor));
    }
    shard(group, parameters, false);
    return &group;
  };
  if (wraps_ends && !is_tied) {
    embedding_ = make_unit(groups_[layers_ + ends - 1], embedding);
    embedding_->modules = 1;
  }
  if (wraps_ends && !tail.empty()) {
    tail_ = make_unit(groups_[layers_], tail);
    tail_->modules = (has_head ? 1 : 0) + (norm.empty() ? 0 : 1) + (is_tied ? 1 : 0);
    tail_->reshards_after_forward = false;
  }
  order_children_first(rest);
  move_to_card(rest);
  const auto move_buffers = [&] {
    for (const Tensor& buffer : model.buffers) {
      Tensor moved = tape.empty(buffer.shape(), buffer.dtype(), kMove, Category::kWeights);
      tape.take_storage(buffer, moved);
    }
  };
  if (!is_on_card && !is_sent_by_rank_0()) move_buffers();
  shard(groups_.back(), rest, false);
  for (Tensor& each : whole) each.reset();
  if (is_sent_by_rank_0()) {
    receive_from_rank_0(model, is_tied);
    move_buffers();
  }
  groups_.back().reshards_after_forward = !wraps_ends;  // accelerate before 1.14 says True of the root, too
  assumptions.emplace_back(
      !wraps_ends
          ? "accelerate before 1.14 shards the layers, and all that is outside of them as one unit (not validated)"
      : is_tied  ? "accelerate 1.15 shards the layers, and embedding, final norm and tied head as one unit"
      : has_head ? "accelerate 1.15 shards the layers, the embedding, and final norm and head as one unit"
                 : "accelerate 1.15 shards the layers, the embedding and the final norm; a classifier is of the root");
  if (is_sent_by_rank_0()) {
    assumptions.emplace_back(
        "accelerate's cpu_ram_efficient_loading: the model is sharded on the meta device, and rank 0 sends one "
        "parameter "
        "after the other, of which the other ranks have two whole at a time, rank 0 one (not validated)");
    return;
  }
  if (!quantized_) {
    assumptions.emplace_back(
        "each rank has the whole model in host memory, from which the units move to the card one by one");
    return;
  }
  if (packs_on_host(run)) {
    assumptions.push_back(fmt::format(
        "each rank packs the whole model in host memory, by from_pretrained(device_map={{\"\": \"cpu\"}}), "
        "where it takes {:.1f} GiB beside the shards until all units have been on the card and are sharded; "
        "without a device_map each card would hold the whole model at once",
        static_cast<double>(whole_on_host) / static_cast<double>(kGiB)));
    assumptions.emplace_back(
        "what packed weights are scaled with stays whole on each card: it is no parameter, so FSDP2 neither shards nor "
        "offloads it");
    return;
  }
  assumptions.emplace_back(run.fine_tuning.quant_storage
                               ? "each card holds the whole quantised model before it is sharded"
                               : "4-bit weights stored as bytes stay whole on each card: FSDP2 shares out those of a "
                                 "floating type (--quant-storage bf16)");
}

// fsdp2_load_full_state_dict, on the ranks that receive: torch.empty() of the next parameter is there before the last
// one dies. distribute_tensor() takes this rank's chunk, in a tensor of its own, of which a last one that is smaller is
// padded. A tied head is sent by itself, and tied again when all are there.
void Fsdp2::receive_from_rank_0(Model& model, bool is_tied) {
  Tensor full;
  const auto receive = [&](std::size_t i) {
    const DType dtype = model.parameters[i].tensor.dtype();
    Tensor next = tape.empty(whole_shapes[i], dtype, kBroadcast);
    full = std::move(next);
    tape.kernels.collective(kBroadcast, Collective::kBroadcast, dtype, full.bytes(), run.parallel.gpus);
    Shape rows = whole_shapes[i];
    rows[0] = ceil_div(rows[0], shards_);
    return tape.empty(rows, dtype, kScatter, Category::kWeights);
  };
  Tensor tied;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    Tensor shard = receive(i);
    tape.take_storage(model.parameters[i].tensor, shard);
    if (is_tied && model.parameters[i].is_embedding && !tied.defined()) tied = model.parameters[i].tensor;
  }
  if (!tied.defined()) return;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    if (model.parameters[i].tensor.impl() == tied.impl()) (void)receive(i);
  }
}

// --- hooks around the embedding, and around the first and the last module of the tail

Fsdp2::Group* Fsdp2::unit_of(const Tensor& parameter) const {
  const auto found = unit_of_.find(parameter.impl());
  return found == unit_of_.end() ? nullptr : found->second;
}

Tensor Fsdp2::before_module(const void* module, std::span<const Tensor* const> parameters, const Tensor& input) {
  Group* group = unit_of(*parameters.front());
  if (group == nullptr) return input;
  running_[module] = group;
  if (group->modules_to_run > 0) return input;
  group->modules_to_run = group->modules;
  Tensor argument = input;
  if (input.defined() && param_dtype_ && is_floating(input.dtype()) &&
      input.dtype() != *param_dtype_) {  // cast_forward_inputs
    argument = to_dtype(input, *param_dtype_);
  }
  pre_forward(*group);
  if (argument.defined() && tape.modes.grad_enabled && argument.requires_grad())
    argument = register_post_backward(*group, argument);
  return argument;
}

void Fsdp2::after_module(const void* module, const Tensor& output) {
  const auto found = running_.find(module);
  if (found == running_.end()) return;
  Group& group = *found->second;
  running_.erase(found);
  if (--group.modules_to_run > 0) return;
  post_forward(group);
  if (output.requires_grad()) tape.autograd.before_backward_of(output, [this, &group] { pre_backward(group); });
}

// A head of its own unit that is never called (peft hides the final norm, with which it would share one): its weight is
// still a DTensor, whose full_tensor() gathers it in the type in which it is stored.
Tensor Fsdp2::before_direct_read(const Tensor& parameter) {
  const Group* group = unit_of(parameter);
  if (group == nullptr || group->is_unsharded) return parameter;
  for (const ShardedParameter& each : group->params) {
    if (each.unsharded.impl() != parameter.impl()) continue;
    if (each.trains) throw refusal(rules::kFsdp2DirectRead);
    return full_tensor(each);
  }
  throw Error(ErrorCode::kInternal, "Fsdp2: a parameter is not of its unit");
}

// DTensor.full_tensor(): Shard._to_replicate_tensor pads a shard that is smaller than the others.
Tensor Fsdp2::full_tensor(const ShardedParameter& param) {
  const DType dtype = param.sharded.dtype();
  Tensor padded;
  if (param.sharded.elements() < param.shard_elements) {
    padded = tape.empty({param.shard_elements}, dtype, aten::kConstantPadNd);
  }
  const Tensor whole = tape.empty({checked_multiply(param.shard_elements, shards_)}, dtype, kFunctionalGather,
                                  Category::kGatheredWeights);
  tape.kernels.collective(kFunctionalGather, Collective::kAllGather, dtype, whole.bytes(), shards_);
  return tape.alias(whole, param.unsharded.shape(), param.unsharded.strides(), false);
}

Tensor Fsdp2::linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return memcalc::linear(x, weight, bias);
}

}  // namespace memcalc
