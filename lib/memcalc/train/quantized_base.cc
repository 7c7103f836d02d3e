// transformers 5.17: modeling_utils.py (caching_allocator_warmup), core_model_loading.py
// (convert_and_load_state_dict_in_model), integrations/bitsandbytes.py; peft utils/other.py.
#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/models/own_adapters.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/ops/marlin.h"
#include "memcalc/train/fine_tuning.h"
#include "memcalc/train/linear_names.h"

namespace memcalc {

namespace {

constexpr Operator kWarmup{"caching_allocator_warmup"}, kToDevice{"aten::_to_copy"}, kEmptyLike{"aten::empty_like"};

std::string_view next_part(std::string_view& rest) {
  const std::size_t dot = rest.find('.');
  const std::string_view part = rest.substr(0, dot);
  rest = dot == std::string_view::npos ? std::string_view{} : rest.substr(dot + 1);
  return part;
}

bool is_number(std::string_view part) {
  return !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// dot_natural_key: names are compared part by part, numbers as numbers.
bool loads_before(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    const std::string_view x = next_part(a);
    const std::string_view y = next_part(b);
    if (x == y) continue;
    if (is_number(x) && is_number(y) && x.size() != y.size()) return x.size() < y.size();
    return x < y;
  }
  return a.empty() && !b.empty();
}

struct LoadedParameter {
  const Parameter* parameter = nullptr;
  FineTunedLinear* quantized = nullptr;  // the layer whose weight this is, where that is quantised
};

Bytes packed_bytes(const LoadedParameter& loaded, Quantization kind) {
  const Bytes bytes = loaded.parameter->tensor.bytes();
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

std::vector<LoadedParameter> in_loading_order(const Model& model, const RunSpec& run) {
  std::vector<LoadedParameter> order;
  order.reserve(model.parameters.size());
  for (const Parameter& parameter : model.parameters) order.push_back({&parameter, nullptr});
  const bool lightning = is_lightning(model);
  bool has_head = lightning;  // which packs every linear layer
  for (const auto& layer : model.linear_layers) {
    const bool is_head = is_output_embedding(layer->name);
    if (is_head && !run.fine_tuning.packs_head) continue;  // get_keys_to_not_convert
    has_head = has_head || is_head;
    layer->quantized.keeps_input = run.fine_tuning.keeps_packed_inputs;
    layer->quantized.kind = run.fine_tuning.quantization;
    layer->quantized.out_features = layer->out_features;
    layer->quantized.in_features = layer->in_features;
    layer->quantized.group_size = run.fine_tuning.group_size;
    if (is_prequantized(layer->quantized.kind) || lightning) {
      layer->quantized.dtype = weight_of(model, *layer).dtype();
    }
    if (is_prequantized(layer->quantized.kind)) check_marlin(*layer);
    order[layer->first_parameter].quantized = layer.get();
  }
  if (run.fine_tuning.packs_head && !has_head) {
    throw refusal(rules::kPackedHead);
  }
  std::sort(order.begin(), order.end(), [](const LoadedParameter& a, const LoadedParameter& b) {
    return loads_before(a.parameter->name, b.parameter->name);
  });
  return order;
}

/// gptqmodel's post_init of every module, once all are loaded.
void repack_prequantized(Tape& tape, Model& model) {
  for (const auto& layer : model.linear_layers) {
    if (is_prequantized(layer->quantized.kind)) repack_marlin(tape, layer->quantized);
  }
}

}  // namespace

void load_quantized(Tape& tape, Model& model, const RunSpec& run) {
  if (model.linear_layers.empty()) throw refusal(rules::kQuantizedLayers);
  const std::vector<LoadedParameter> order = in_loading_order(model, run);
  Bytes total = 0;
  for (const LoadedParameter& loaded : order) {
    total = checked_add(total, packed_bytes(loaded, run.fine_tuning.quantization));
  }
  const bool lightning = is_lightning(model);
  if (!lightning) tape.scratch(total, kWarmup);
  for (const LoadedParameter& loaded : order) {
    const Tensor& parameter = loaded.parameter->tensor;
    if (loaded.quantized != nullptr && is_prequantized(loaded.quantized->quantized.kind)) {
      load_marlin(tape, loaded.quantized->quantized);
      parameter.impl()->dtype = DType::kUInt8;
      tape.set_trainable(parameter, false);
      continue;
    }
    const DType source_dtype = lightning && loaded.quantized != nullptr ? DType::kFloat16 : parameter.dtype();
    Tensor source = tape.empty(parameter.shape(), source_dtype, kToDevice, Category::kWeights);
    if (loaded.quantized != nullptr) {
      Tensor packed = quantize(source, loaded.quantized->quantized);
      source.reset();
      tape.take_storage(parameter, packed);
      parameter.impl()->dtype = DType::kUInt8;
      tape.set_trainable(parameter, false);
    } else {
      tape.take_storage(parameter, source);
    }
  }
  for (const Tensor& buffer : model.buffers) {
    Tensor storage = tape.empty(buffer.shape(), buffer.dtype(), kEmptyLike, Category::kWeights);
    tape.take_storage(buffer, storage);
  }
  repack_prequantized(tape, model);
}

void prepare_for_kbit_training(Tape& tape, Model& model) {
  for (const Parameter& parameter : model.parameters) tape.set_trainable(parameter.tensor, false);
  for (const Parameter& parameter : model.parameters) {
    if (is_half(parameter.tensor.dtype())) tape.convert(parameter.tensor, DType::kFloat32, kToDevice);
  }
  tape.empty_cache();
}

}  // namespace memcalc
