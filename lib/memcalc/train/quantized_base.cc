// transformers 5.17: modeling_utils.py (caching_allocator_warmup), core_model_loading.py
// (convert_and_load_state_dict_in_model), integrations/bitsandbytes.py; peft utils/other.py.
// MIRRORS(peft, "utils/other.py", "0.21.2")
// MIRRORS(transformers, "core_model_loading.py", "5.17.0")
// MIRRORS(transformers, "integrations/bitsandbytes.py", "5.17.0")
// MIRRORS(transformers, "modeling_utils.py", "5.17.0")
// MIRRORS(transformers, "quantizers/quantizer_mxfp4.py", "5.17.0")
#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/models/own_adapters.h"
#include "memcalc/models/packed_experts.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/block_fp8.h"
#include "memcalc/symbolic/ops/marlin.h"
#include "memcalc/symbolic/ops/mxfp4.h"
#include "memcalc/train/fine_tuning.h"
#include "memcalc/train/linear_names.h"
#include "memcalc/train/loading.h"
#include "memcalc/train/tp_plan.h"

namespace memcalc {

namespace {

constexpr Operator kWarmup{"caching_allocator_warmup"};

struct LoadedParameter {
  const Parameter* parameter = nullptr;
  FineTunedLinear* quantized = nullptr;  // the layer whose weight this is, where that is quantised
  ExpertMatrices* experts = nullptr;     // the experts whose matrices this is, where they are
  PackedParameter* packed = nullptr;     // of experts that axolotl packs
};

/// What caching_allocator_warmup counts of a parameter: MXFP4's scales are none, FP8's are.
Bytes packed_bytes(const LoadedParameter& loaded, Quantization kind) {
  const Bytes bytes = loaded.parameter->tensor.bytes();
  if (loaded.experts != nullptr && kind == Quantization::kMxfp4) return loaded.experts->elements() / 2;
  if (kind == Quantization::kFp8 && (loaded.experts != nullptr || loaded.quantized != nullptr)) {
    const PackedBytes packed =
        loaded.experts != nullptr ? block_fp8_bytes(*loaded.experts) : block_fp8_bytes(loaded.quantized->quantized);
    return checked_add(packed.weight, packed.constants);
  }
  if (loaded.quantized == nullptr) return bytes;
  const std::int64_t elements = loaded.parameter->tensor.elements();
  return kind == Quantization::kInt8 ? elements : ceil_div(elements, 2);
}

const Tensor& weight_of(const Model& model, const FineTunedLinear& layer) {
  return model.parameters[layer.first_parameter].tensor;
}

/// Lightning's BitsandbytesPrecision packs each weight as it meets it, by way of float16.
bool is_lightning(const Model& model) { return dynamic_cast<const OwnAdapters*>(&model) != nullptr; }

/// What gptqmodel's Marlin kernel takes: marlin.py, SUPPORTS_…; tiles of 128 x 64.
void check_marlin(const FineTunedLinear& layer) {
  const std::int64_t group = layer.quantized.group_size;
  if (layer.in_features % 128 == 0 && layer.out_features % 64 == 0 && layer.in_features % group == 0) return;
  throw refusal(rules::kMarlinShape, {name_of(layer.quantized.kind), std::to_string(layer.in_features),
                                      std::to_string(layer.out_features), layer.name});
}

/// What the kernels of FP8 experts assert.
void check_fp8_experts(const PackedExperts& layer) {
  for (const ExpertMatrices* each : {&layer.gate_up_proj, &layer.down_proj}) {
    if (each->in_features % kFp8Block == 0 && (each->out_features / each->parts) % kFp8Block == 0) continue;
    throw refusal(rules::kFp8Experts,
                  {std::to_string(each->in_features), std::to_string(each->out_features / each->parts), layer.name});
  }
}

/// replace_with_fp8_linear and replace_with_mxfp4_linear: the experts become a module of packed matrices.
void pack_experts(const Model& model, Quantization kind, std::vector<LoadedParameter>& order) {
  if (!is_native(kind)) return;
  for (const auto& layer : model.experts) {
    layer->gate_up_proj.kind = layer->down_proj.kind = kind;
    if (kind == Quantization::kFp8) check_fp8_experts(*layer);
    order[layer->gate_up_parameter()].experts = &layer->gate_up_proj;
    order[layer->down_parameter()].experts = &layer->down_proj;
    if (kind != Quantization::kMxfp4) continue;
    for (const std::size_t weight : {layer->gate_up_parameter(), layer->down_parameter()}) {
      model.parameters[weight + 1].tensor.impl()->dtype = DType::kFloat32;  // Mxfp4GptOssExperts' biases
    }
  }
}

/// axolotl's moe_quant.py: what is set with three dimensions in a module called experts is packed at once.
void pack_expert_parameters(const Model& model, const RunSpec& run, std::vector<LoadedParameter>& order) {
  bool found = false;
  for (const auto& layer : model.experts) {
    std::vector<std::size_t> places;
    for (std::size_t i = layer->first_parameter; i <= layer->last_parameter; ++i) {
      if (model.parameters[i].tensor.rank() == 3 && layer->name.find("expert") != std::string::npos)
        places.push_back(i);
    }
    layer->packed.reserve(places.size());
    for (const std::size_t i : places) {
      const Tensor& parameter = model.parameters[i].tensor;
      QuantizedWeight weight;
      weight.kind = run.fine_tuning.quantization;
      weight.out_features = checked_multiply(parameter.size(0), parameter.size(1));
      weight.in_features = parameter.size(2);
      layer->packed.push_back({.parameter = parameter, .shape = parameter.shape(), .weight = std::move(weight)});
      order[i].packed = &layer->packed.back();
      found = true;
    }
  }
  if (!found) throw refusal(rules::kPackedExperts);
}

/// The first layer of each shape is the one for which FP8's kernels are tried out.
void leave_shapes_to_tune(const Model& model) {
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  for (const auto& layer : model.linear_layers) {
    if (layer->quantized.kind != Quantization::kFp8) continue;
    layer->quantized.is_tuned = !seen.emplace(layer->out_features, layer->in_features).second;
  }
  seen.clear();
  for (const auto& layer : model.experts) {
    for (ExpertMatrices* each : {&layer->gate_up_proj, &layer->down_proj}) {
      each->is_tuned = each->is_tuned_for_decode = !seen.emplace(each->out_features, each->in_features).second;
    }
  }
}

std::vector<LoadedParameter> in_loading_order(const Model& model, const RunSpec& run, std::string_view model_type) {
  std::vector<LoadedParameter> order;
  order.reserve(model.parameters.size());
  for (const Parameter& parameter : model.parameters) order.push_back({&parameter});
  pack_experts(model, run.fine_tuning.quantization, order);
  const bool lightning = is_lightning(model);
  bool has_head = lightning;  // which packs every linear layer
  // transformers leaves it (get_keys_to_not_convert), diffusers does not (quantizers/bitsandbytes/bnb_quantizer.py).
  const bool packs_head = run.fine_tuning.packs_head || model_type == "diffusers";
  for (const auto& layer : model.linear_layers) {
    if (run.fine_tuning.quantization == Quantization::kMxfp4) break;  // of experts only
    const bool is_head = is_output_embedding(layer->name);
    if (is_head && !packs_head) continue;
    has_head = has_head || is_head;
    layer->quantized.keeps_input = run.profile.behaviors.keeps_packed_inputs;
    layer->quantized.kind = run.fine_tuning.quantization;
    layer->quantized.out_features = layer->out_features;
    layer->quantized.in_features = layer->in_features;
    layer->quantized.group_size = run.fine_tuning.group_size;
    if (is_prequantized(layer->quantized.kind) || lightning) {
      layer->quantized.dtype = weight_of(model, *layer).dtype();
    }
    if (is_marlin(layer->quantized.kind)) check_marlin(*layer);
    order[layer->first_parameter].quantized = layer.get();
  }
  if (run.fine_tuning.packs_experts) pack_expert_parameters(model, run, order);
  if (run.fine_tuning.quantization == Quantization::kFp8) leave_shapes_to_tune(model);
  if (run.fine_tuning.packs_head && !has_head) {
    throw refusal(rules::kPackedHead);
  }
  std::vector<LoadedParameter> sorted;
  sorted.reserve(order.size());
  for (const std::size_t i : loading_order(model, model_type)) sorted.push_back(order[i]);
  return sorted;
}

/// A weight that is loaded as it was published; nothing where this is none.
std::optional<Tensor> load_native(Tape& tape, const LoadedParameter& loaded) {
  if (loaded.experts != nullptr) {
    return loaded.experts->kind == Quantization::kFp8 ? load_block_fp8(tape, *loaded.experts)
                                                      : load_mxfp4(tape, *loaded.experts);
  }
  if (loaded.quantized == nullptr || loaded.quantized->quantized.kind != Quantization::kFp8) return std::nullopt;
  return load_block_fp8(tape, loaded.quantized->quantized);
}

/// gptqmodel's post_init of every module, once all are loaded.
void repack_prequantized(Tape& tape, Model& model) {
  for (const auto& layer : model.linear_layers) {
    if (is_marlin(layer->quantized.kind)) repack_marlin(tape, layer->quantized);
  }
}

}  // namespace

void load_quantized(Tape& tape, Model& model, const RunSpec& run, std::string_view model_type) {
  if (model.linear_layers.empty()) throw refusal(rules::kQuantizedLayers);
  const OnMetaDevice on_host(tape.memory, packs_on_host(run));
  if (packs_on_host(run)) tape.modes.has_dynamic_map = true;  // get_4bit_type's map is made on the host
  const std::vector<LoadedParameter> order = in_loading_order(model, run, model_type);
  Bytes total = 0;
  for (const LoadedParameter& loaded : order) {
    const Bytes bytes = packed_bytes(loaded, run.fine_tuning.quantization);
    // get_total_byte_count: with a process group what a plan of tensor parallelism names counts as split.
    const bool is_split = run.parallel.is_parallel() && is_in_tp_plan(model_type, loaded.parameter->name);
    total = checked_add(total, is_split ? bytes / run.parallel.gpus : bytes);
  }
  const bool lightning = is_lightning(model);
  if (!lightning && !run.fine_tuning.packs_experts) tape.memory.scratch(total, kWarmup);
  for (const LoadedParameter& loaded : order) {
    const Tensor& parameter = loaded.parameter->tensor;
    if (std::optional<Tensor> packed = load_native(tape, loaded)) {
      tape.take_storage(parameter, *packed);
      parameter.impl()->dtype = DType::kUInt8;
      tape.autograd.set_trainable(parameter, false);
      continue;
    }
    if (loaded.quantized != nullptr && is_marlin(loaded.quantized->quantized.kind)) {
      load_marlin(tape, loaded.quantized->quantized);
      parameter.impl()->dtype = DType::kUInt8;
      tape.autograd.set_trainable(parameter, false);
      continue;
    }
    const DType source_dtype = lightning && loaded.quantized != nullptr ? DType::kFloat16 : parameter.dtype();
    Tensor source = tape.empty(parameter.shape(), source_dtype, aten::kToCopy, Category::kWeights);
    if (loaded.quantized != nullptr || loaded.packed != nullptr) {
      Tensor packed = quantize(source, loaded.packed != nullptr ? loaded.packed->weight : loaded.quantized->quantized);
      source.reset();
      tape.take_storage(parameter, packed);
      parameter.impl()->dtype = DType::kUInt8;
      tape.autograd.set_trainable(parameter, false);
      if (loaded.packed != nullptr) tape.memory.empty_cache();
    } else {
      tape.take_storage(parameter, source);
    }
  }
  for (const Tensor& buffer : model.buffers) {
    Tensor storage = tape.empty(buffer.shape(), buffer.dtype(), aten::kEmptyLike, Category::kWeights);
    tape.take_storage(buffer, storage);
  }
  repack_prequantized(tape, model);
  if (run.fine_tuning.quantization == Quantization::kMxfp4) tape.memory.empty_cache();  // quantizer_mxfp4.py
}

void prepare_for_kbit_training(Tape& tape, Model& model) {
  for (const Parameter& parameter : model.parameters) tape.autograd.set_trainable(parameter.tensor, false);
  for (const Parameter& parameter : model.parameters) {
    if (is_half(parameter.tensor.dtype())) tape.convert(parameter.tensor, DType::kFloat32, aten::kToCopy);
  }
  if (tape.behaviors.kbit_empties_cache) tape.memory.empty_cache();
}

}  // namespace memcalc
