// peft 0.21: tuners/tuners_utils.py (_unload_and_optionally_merge), tuners/lora/layer.py and bnb.py (merge,
// get_delta_weight), utils/integrations.py (dequantize_bnb_weight); bitsandbytes 0.50: nn/modules.py (_quantize);
// transformers 5.17: modeling_utils.py (save_pretrained), core_model_loading.py (revert_weight_conversion).
// MIRRORS(bitsandbytes, "functional.py", "0.50.2")
// MIRRORS(bitsandbytes, "nn/modules.py", "0.50.2")
// MIRRORS(peft, "tuners/lora/layer.py", "0.21.2")
// MIRRORS(peft, "tuners/tuners_utils.py", "0.21.2")
// MIRRORS(peft, "utils/integrations.py", "0.21.2")
// MIRRORS(transformers, "core_model_loading.py", "5.17.0")
// MIRRORS(transformers, "modeling_utils.py", "5.17.0")
#include "memcalc/train/saving.h"

#include <utility>
#include <vector>

#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/models/packed_experts.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/train/loading.h"

namespace memcalc {

namespace {

constexpr Operator kDequantize4Bit{"bitsandbytes::dequantize_4bit"};
constexpr Operator kDequantizeScales{"bitsandbytes::dequantize_blockwise"};
constexpr Operator kDequantizeRows{"bitsandbytes::int8_vectorwise_dequant"};
constexpr Operator kGather{"_c10d_functional::all_gather_into_tensor"};
constexpr std::int64_t kCodes = 256;  // of the map that quantises block scales

/// What quantize() leaves of the weight that was the first to be packed doubly: beside its own the map that all share,
/// which bitsandbytes keeps (functional.py, name2qmap).
constexpr std::size_t kScalesOfFirst = 6, kSharedMap = 2;

const Tensor* weight_of(const Model& model, const FineTunedLinear& layer) {
  const std::string name = layer.name + ".weight";
  for (const Parameter& parameter : model.parameters) {
    if (parameter.name == name) return &parameter.tensor;
  }
  return nullptr;
}

/// get_delta_weight: (weight_B @ weight_A) * scaling.
Tensor delta_weight(const FineTunedLinear& layer) { return multiply_scalar(matmul(layer.lora_b, layer.lora_a)); }

/// Adapters as the modules stand in the model: of linear layers, and of wrapped parameters the outermost first.
template <typename OfLinear, typename OfParameter>
void in_order_of_modules(const Model& model, const OfLinear& of_linear, const OfParameter& of_parameter) {
  auto wrapped = model.experts.begin();
  const auto wrappers_before = [&](std::size_t parameter) {
    for (; wrapped != model.experts.end() && (*wrapped)->last_parameter < parameter; ++wrapped) {
      const std::vector<ParamWrapper>& wrappers = (*wrapped)->wrappers;
      for (auto each = wrappers.rbegin(); each != wrappers.rend(); ++each) of_parameter(*each);
    }
  };
  for (const auto& layer : model.linear_layers) {
    wrappers_before(layer->last_parameter);
    if (layer->lora_a.defined()) of_linear(*layer);
  }
  wrappers_before(model.parameters.size());
}

/// dequantize_bnb_weight
Tensor unpacked(Tape& tape, const QuantizedWeight& weight) {
  const Shape shape{weight.out_features, weight.in_features};
  if (weight.kind == Quantization::kInt8) {
    const Tensor scaled = tape.empty(shape, DType::kFloat32, aten::kMul);  // A * stats
    return tape.empty(shape, DType::kFloat32, kDequantizeRows);            // … * 1 / 127
  }
  Tensor scales;
  if (weight.kind == Quantization::kNf4Double) {
    const std::int64_t blocks = ceil_div(checked_multiply(weight.out_features, weight.in_features), kNf4Block);
    scales = tape.empty({blocks}, DType::kFloat32, kDequantizeScales);
  }
  return tape.empty(shape, weight.source_dtype, kDequantize4Bit);
}

/// Linear4bit.merge and Linear8bitLt.merge: the merged weight goes to the host and is packed again on its way back.
/// Until the method returns, all of its variables live.
void merge_packed(Tape& tape, const FineTunedLinear& layer, const Tensor& parameter, QuantizedWeight& weight) {
  const Tensor output = unpacked(tape, weight);
  const Tensor delta = delta_weight(layer);
  const DType sum_type = delta.dtype() == output.dtype() ? output.dtype() : DType::kFloat32;
  const Tensor merged = tape.empty(output.shape(), sum_type, aten::kAdd);
  const std::vector<Tensor> old_scales = std::exchange(weight.scales, {});
  if (old_scales.size() == kScalesOfFirst) weight.scales.push_back(old_scales[kSharedMap]);
  const bool transposes = std::exchange(weight.transposes, false);  // it is row-major already
  Tensor packed;
  if (weight.kind == Quantization::kInt8) {  // converted to float16 on the host: quantize() asks for that copy
    packed = quantize(merged, weight);
  } else {
    const Tensor moved = tape.empty(merged.shape(), merged.dtype(), aten::kToCopy);
    packed = quantize(moved, weight);
  }
  weight.transposes = transposes;
  std::swap(parameter.impl()->block, packed.impl()->block);
}

}  // namespace

void merge_adapters(Tape& tape, Model& model) {
  const NoGrad no_grad(tape.modes);
  in_order_of_modules(
      model,
      [&](FineTunedLinear& layer) {
        if (layer.quantized.kind == Quantization::kNone) {
          const Tensor delta = delta_weight(layer);  // base_layer.weight.data += delta_weight
          return;
        }
        const Tensor* weight = weight_of(model, layer);
        if (weight == nullptr) throw Error(ErrorCode::kInternal, "merge_adapters: no weight of " + layer.name);
        merge_packed(tape, layer, *weight, layer.quantized);
      },
      [](const ParamWrapper& wrapper) { const Tensor delta = delta_weight(wrapper); });  // param.data += delta_weight
}

void unmerge_adapters(Tape& tape, const Model& model) {
  const NoGrad no_grad(tape.modes);
  in_order_of_modules(
      model,
      [&](const FineTunedLinear& layer) {
        const Tensor* weight = weight_of(model, layer);
        if (weight == nullptr) throw Error(ErrorCode::kInternal, "unmerge_adapters: no weight of " + layer.name);
        const Tensor delta = delta_weight(layer);
        const Tensor in_type_of_weight = no_grad::to(delta, weight->dtype());  // delta_weight.to(orig_dtype)
      },
      [](const ParamWrapper& wrapper) { const Tensor delta = delta_weight(wrapper); });
}

void save_model(Tape& tape, const Model& model, bool adapters_alone) {
  // state_dict(), of which the adapters are taken, copies the map of codes of each doubly packed weight
  // (QuantState.as_dict, "nested_quant_map").
  std::vector<Tensor> maps;
  for (const auto& layer : model.linear_layers) {
    if (layer->quantized.kind == Quantization::kNf4Double) {
      maps.push_back(tape.empty({kCodes}, DType::kFloat32, aten::kClone));
    }
  }
  if (adapters_alone) return;
  // revert_weight_conversion: gate and up, which lie beside each other, are made contiguous, each by itself. They live
  // until the file is written.
  std::vector<Tensor> halves;
  for (const Parameter& parameter : model.parameters) {
    if (!holds_gate_and_up(parameter) || !is_merged_expert_matrix(model, parameter)) continue;
    const Tensor& both = parameter.tensor;
    const Shape half{both.size(0), both.size(1) / 2, both.size(2)};
    for (int i = 0; i < 2; ++i) halves.push_back(tape.empty(half, both.dtype(), aten::kContiguous));
  }
}

void gather_full_state(Tape& tape, const Model& model, const RunSpec& run, const std::vector<Shape>& whole_shapes) {
  const TorchMesh& mesh = run.parallel.torch();
  const std::int64_t shards = mesh.hsdp_shard > 0 ? mesh.hsdp_shard : run.parallel.gpus;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const Tensor& held = model.parameters[i].tensor;
    const std::int64_t rows = ceil_div(whole_shapes[i][0], shards);
    const Bytes row = checked_multiply(whole_shapes[i].elements() / whole_shapes[i][0], size_of(held.dtype()));
    // A shard that is smaller than the others is padded first (Shard._to_replicate_tensor).
    Tensor padded;
    if (held.rank() > 0 && held.size(0) < rows) {
      padded = tape.empty({rows * (row / size_of(held.dtype()))}, held.dtype(), aten::kConstantPadNd);
    }
    tape.memory.scratch(checked_multiply(rows * shards, row), kGather, Category::kGatheredWeights);
  }
}

}  // namespace memcalc
