// How ZeRO-3 comes to its parts: deepspeed/runtime/zero/partition_parameters.py (zero.Init) and the constructor of
// DeepSpeedZeroOptimizer_Stage3 (stage3.py), 0.19.8; what of it transformers calls: modeling_utils.py.
// MIRRORS(deepspeed, "runtime/zero/partition_parameters.py", "0.19.8")
// MIRRORS(deepspeed, "runtime/zero/stage3.py", "0.19.8")
// MIRRORS(transformers, "modeling_utils.py", "5.17.0")
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/train/linear_names.h"
#include "memcalc/train/parallel/deepspeed_zero3.h"

namespace memcalc {

namespace {

constexpr Operator kPartition{"deepspeed::partition"}, kDefragment{"deepspeed::defragment"};
constexpr Operator kGather{"c10d::_allgather_base_"};

/// "model.norm" of "model.norm.weight".
std::string_view module_of(std::string_view name) { return name.substr(0, name.rfind('.')); }

}  // namespace

void DeepSpeedZero3::add_shared(const Parameter& parameter, DType type) {
  SharedParameter shared{.name = parameter.name, .tensor = parameter.tensor};
  shared.trains = parameter.tensor.requires_grad();
  shared.dtype = type;
  shared.elements = type == DType::kUInt8 ? ceil_div(parameter.tensor.elements(), 2) : parameter.tensor.elements();
  shared.part = ceil_div(shared.elements, ranks);
  const DeepSpeedZero& options = run.parallel.deepspeed();
  shared.persists = shared.elements <= (is_reference_ ? options.param_persistence_threshold_of_reference
                                                      : options.param_persistence_threshold);
  number_of_[parameter.tensor.impl()] = static_cast<int>(params_.size());
  if (shared.trains) part_elements_ = checked_add(part_elements_, shared.part);
  params_.push_back(std::move(shared));
}

/// param.partition() of one that is whole.
void DeepSpeedZero3::partition(SharedParameter& param) {
  {
    const OnMetaDevice on_meta(tape.memory, offloads_parameters());
    param.own_part = tape.empty({param.part}, param.dtype, kPartition, Category::kWeights);
  }
  drop_data(param.tensor);
}

// What a bare loop builds as a whole zero.Init(module=…) parts in the end.
void DeepSpeedZero3::partition_parameters(Model& model) {
  if (is_loaded_) {
    add_adapters(model);
  } else if (is_reference_) {
    build_under_zero_init(model);
  } else if (run.fine_tuning.quantization != Quantization::kNone) {
    partition_quantized(model);
  } else if (run.fine_tuning.lora) {
    build_under_zero_init(model);
    add_adapters(model);
  } else {
    if (run.uses_trainer()) move_to_host(model);  // from_pretrained under zero.Init: one parameter at a time
    for (const Tensor& buffer : model.buffers) {
      if (run.uses_trainer()) move_to_card(buffer);
    }
    for (const Parameter& parameter : model.parameters) {
      if (!parameter.tensor.requires_grad()) throw refusal(rules::kZero3Frozen, {parameter.name});
      add_shared(parameter, dtype);
      if (run.uses_trainer()) move_to_card(parameter.tensor);
      partition(params_.back());
    }
  }
  part_elements_ = 0;
  for (const Parameter& parameter : model.parameters) {
    in_model_order_.push_back(number_of_.at(parameter.tensor.impl()));
    SharedParameter& shared = param(in_model_order_.back());
    shared.trains = parameter.tensor.requires_grad() && !is_reference_;
    if (!shared.trains) continue;
    part_elements_ = checked_add(part_elements_, shared.part);
    trained_dtype_ = shared.dtype;
  }
  if (!is_reference_) defragment(model);
}

// from_pretrained (modeling_utils.py, _load_state_dict_into_zero3_model): built under zero.Init, then filled from a
// state dict that each rank has read as a whole.
bool DeepSpeedZero3::load(Model& model) {
  is_loaded_ = true;
  build_under_zero_init(model);
  return true;
}

// transformers loads a quantised model whole, without zero.Init (modeling_utils.py, get_init_context): DeepSpeed casts
// what has a floating type, adapters as well, and Init(module=…) parts parameter by parameter. Packed weights are
// parted as the bytes that they are, what they are scaled with stays on each card.
void DeepSpeedZero3::partition_quantized(Model& model) {
  cast_on_card(model);
  for (const Parameter& parameter : model.parameters) {
    const bool is_packed = parameter.tensor.dtype() == DType::kUInt8;
    add_shared(parameter, is_packed ? DType::kUInt8 : dtype);
    partition(params_.back());
  }
}

// A module's parameters are made on the card, then each is parted (_post_init_method): the parts lie where the
// allocator found room beside what was whole, and stay there, for only what trains is defragmented. The weights that
// from_pretrained loads pass through gathers of each module.
void DeepSpeedZero3::build_under_zero_init(Model& model) {
  const bool has_adapters = run.fine_tuning.lora && !is_loaded_ && !is_reference_;
  std::vector<std::vector<const Parameter*>> modules;
  for (const Parameter& parameter : model.parameters) {
    if (has_adapters && parameter.tensor.requires_grad()) {
      continue;  // they come when the base is there
    }
    if (modules.empty() || module_of(modules.back().front()->name) != module_of(parameter.name)) {
      modules.push_back({&parameter});
    } else {
      modules.back().push_back(&parameter);
    }
  }
  move_to_host(model);
  for (const Tensor& buffer : model.buffers) move_to_card(buffer);
  build_in_parts(modules, model);
}

// A language model's head that tie_weights replaces by the embedding was made and parted, too. zero.Init gives a
// parameter methods that hold it, so that its part stays until Python's collector comes by.
void DeepSpeedZero3::make_replaced_head(const Model& model) {
  if (run.task != Task::kCausalLm) return;
  const Parameter* embedding = nullptr;
  for (const Parameter& each : model.parameters) {
    if (is_output_embedding(module_of(each.name))) return;
    if (each.is_embedding && embedding == nullptr) embedding = &each;
  }
  if (embedding == nullptr) return;
  const Tensor whole = tape.empty(embedding->tensor.shape(), dtype, kPartition);
  Tensor part = tape.empty({ceil_div(whole.elements(), ranks)}, dtype, kPartition, Category::kWeights);
  if (!is_reference_) replaced_head_part_ = std::move(part);
}

void DeepSpeedZero3::add_adapters(Model& model) {
  std::vector<Parameter*> adapters;
  for (Parameter& parameter : model.parameters) {
    if (!number_of_.contains(parameter.tensor.impl())) adapters.push_back(&parameter);
  }
  if (adapters.empty()) return;
  make_adapters(adapters);
  tape.memory.empty_cache();
  for (const Parameter* each : adapters) {
    add_shared(*each, each->tensor.dtype());
    partition(params_.back());
  }
}

void DeepSpeedZero3::build_in_parts(const std::vector<std::vector<const Parameter*>>& modules, const Model& model) {
  for (const std::vector<const Parameter*>& module : modules) {
    const std::size_t first = params_.size();
    for (const Parameter* each : module) {
      Tensor made;  // in the default type, which the model's is, then in DeepSpeed's
      if (weights_dtype_of(run) != dtype) made = tape.empty(each->tensor.shape(), weights_dtype_of(run), aten::kToCopy);
      move_to_card(each->tensor);
      add_shared(*each, dtype);
    }
    of_modules_.emplace_back();
    for (std::size_t i = first; i < params_.size(); ++i) {
      partition(params_[i]);
      of_modules_.back().push_back(static_cast<int>(i));
    }
  }
  make_replaced_head(model);
  for (const std::vector<int>& module : of_modules_) gather_whole(module);
}

// GatheredParameters(…, modifier_rank=0): each in a buffer of its own, for a moment.
void DeepSpeedZero3::gather_whole(std::span<const int> parameters) {
  if (ranks == 1) return;
  std::vector<Tensor> whole;
  for (const int i : parameters) whole.push_back(tape.empty({param(i).part * ranks}, param(i).dtype, kGather));
  for (Tensor& each : whole) each.reset();
}

// DeepSpeedEngine._zero3_consolidated_16bit_state_dict (engine.py), with stage3_gather_16bit_weights_on_model_save:
// module by module on all ranks, copied to rank 0's host. What is whole between steps is parted before, and gathered
// when all is done (checkpoint_event_prologue and _epilogue). Where it was not noted which module holds a parameter, it
// is taken to be in one of its own.
bool DeepSpeedZero3::gather_state() {
  std::vector<bool> noted(params_.size());
  for (const SharedParameter& each : params_) {
    if (each.persists) drop_data(each.tensor);
  }
  for (const std::vector<int>& module : of_modules_) {
    gather_whole(module);
    for (const int i : module) noted[static_cast<std::size_t>(i)] = true;
  }
  for (std::size_t i = 0; i < params_.size(); ++i) {
    const int only = static_cast<int>(i);
    if (!noted[i]) gather_whole({&only, 1});
  }
  gather_persistent();
  return true;
}

// peft makes them in the base's type and turns them into float32 (cast_adapter_dtype), which DeepSpeed leaves them in
// where the base was built under zero.Init (engine.py, _cast_module_mixed_precision).
void DeepSpeedZero3::make_adapters(const std::vector<Parameter*>& adapters) {
  for (const Parameter* each : adapters) move_to_card(each->tensor);
  if (run.fine_tuning.lora->in_base_dtype) return;
  for (const Parameter* each : adapters) {
    if (is_half(each->tensor.dtype())) tape.convert(each->tensor, DType::kFloat32, aten::kToCopy);
  }
}

// _create_fp16_partitions_with_defragmentation: the parts of what trains move through host memory into one flat buffer.
void DeepSpeedZero3::defragment(Model& model) {
  replaced_head_part_.reset();  // gc.collect(), zero/utils.py
  for (SharedParameter& param : params_) {
    if (param.trains) param.own_part.reset();
  }
  if (!offloads_parameters()) tape.memory.empty_cache();  // in defragment(), which parts on the host are spared
  {
    const OnMetaDevice on_meta(tape.memory, offloads_parameters());
    weights_ = tape.empty({part_elements_}, trained_dtype_, kDefragment, Category::kWeights);
  }
  for (const std::vector<Parameter*>& group : parameter_groups(model)) {  // _create_fp16_sub_groups
    sub_groups_.emplace_back();
    std::int64_t in_group = 0;
    for (const Parameter* each : group) {
      if (!sub_groups_.back().empty() && in_group >= run.parallel.deepspeed().sub_group_size) {
        sub_groups_.emplace_back();
        in_group = 0;
      }
      const std::int64_t part = ceil_div(each->tensor.elements(), ranks);
      sub_groups_.back().push_back(part);
      in_group += part;
    }
  }
}

// _create_fp32_partitions: a copy of float32 weights, too, for a device is compared with its name.
void DeepSpeedZero3::make_masters() {
  Tensor converted;
  std::int64_t largest = 0;
  for (const std::vector<std::int64_t>& group : sub_groups_) {
    std::int64_t elements = 0;
    for (const std::int64_t part : group) elements += part;
    largest = std::max(largest, elements);
    if (trained_dtype_ != DType::kFloat32 && !offloads_states()) {
      converted = tape.empty({elements}, DType::kFloat32, aten::kToCopy);
    }
    add_master(elements);
  }
  converted.reset();
  if (!offloads_states())
    tape.memory.scratch(largest * size_of(DType::kFloat32), aten::kZeros);  // initialize_optimizer_states
}

}  // namespace memcalc
