// MIRRORS(peft, "tuners/lora/dora.py", "0.21.2")
// MIRRORS(peft, "tuners/lora/variants.py", "0.21.2")
// MIRRORS(peft, "utils/other.py", "0.21.2")
#include "memcalc/models/dora.h"

#include <utility>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/quantized.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/vectors.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

bool is_packed(const FineTunedLinear& layer) { return layer.quantized.kind != Quantization::kNone; }

/// dequantize_module_weight
Tensor whole_weight(Tape& tape, const FineTunedLinear& layer) {
  if (!is_packed(layer)) return layer.base_weight;
  return unpacked(tape, layer.quantized, {layer.out_features, layer.in_features});
}

/// peft utils/other.py, transpose(weight, fan_in_fan_out): of Conv1D's [in, out], until it is packed, a new
/// nn.Parameter. That one requires a gradient, which nobody reads, and lives as long as the graph.
Tensor out_by_in(const FineTunedLinear& layer, const Tensor& weight) {
  if (!layer.quantized.transposes || is_packed(layer)) return weight;
  return new_parameter(transpose(weight, 0, 1));
}

/// get_weight_norm
Tensor norm_of_sum(const Tensor& weight, const Tensor& lora_weight) {
  Tensor scaled = multiply_scalar(lora_weight);
  const Tensor sum = weight + scaled;
  scaled.reset();
  return to_dtype(vector_norm(sum, 0b10, false), sum.dtype());
}

/// get_lora_weight: the product of the two matrices by way of their modules, whose input is as wide as the layer's.
Tensor product_of_matrices(const FineTunedLinear& layer) {
  const Tensor eye =
      filled(layer.lora_a.tape(), {layer.in_features, layer.in_features}, layer.lora_a.dtype(), aten::kEye);
  return transpose(linear(linear(eye, layer.lora_a, {}), layer.lora_b, {}), 0, 1);
}

}  // namespace

Tensor lengths_of_rows(Tape& tape, const FineTunedLinear& layer) {
  const NoGrad no_grad(tape.modes);  // what the graph keeps lives as long as these variables
  const bool is_fp16 = layer.lora_a.dtype() == DType::kFloat16;  // which is multiplied in float32
  Tensor lora_a = is_fp16 ? to_dtype(layer.lora_a, DType::kFloat32) : layer.lora_a;
  Tensor lora_b = is_fp16 ? to_dtype(layer.lora_b, DType::kFloat32) : layer.lora_b;
  std::vector<Tensor> copies;  // deepcopy(base_layer) of a 4-bit layer
  if (is_packed(layer)) {
    for (const Tensor& scale : layer.quantized.scales) copies.push_back(clone(scale));
    copies.push_back(clone(layer.base_weight));
  }
  Tensor weight = whole_weight(tape, layer);
  Tensor lora_weight = matmul(lora_b, lora_a);
  if (is_fp16) lora_weight = to_dtype(lora_weight, DType::kFloat16);
  Tensor scaled = multiply_scalar(lora_weight);
  Tensor sum = out_by_in(layer, weight) + scaled;
  scaled.reset();
  Tensor lengths = to_dtype(vector_norm(sum, 0b10, false), sum.dtype());
  for (Tensor& copy : copies) copy.reset();
  drop(lora_a, lora_b, weight, lora_weight, sum);

  Tensor parameter;
  {
    const OnMetaDevice nowhere(tape.memory);
    parameter = tape.parameter(lengths.shape(), lengths.dtype());
  }
  const BlockId block = lengths.impl()->block;
  if (block != kNoBlock) tape.memory.set_category(block, Category::kWeights);
  tape.take_storage(parameter, lengths);  // nn.Parameter(weight_norm)
  return parameter;
}

Tensor with_trained_lengths(const FineTunedLinear& layer, const Tensor& input, const Tensor& result,
                            const Tensor& bias) {
  Tape& tape = input.tape();
  const bool drops = layer.lora_dropout > 0;  // Identity where nothing is dropped
  const Tensor x = drops ? dropout(input, layer.lora_dropout) : input;

  Tensor lora_weight = product_of_matrices(layer);
  lora_weight = to_dtype(std::move(lora_weight), x.dtype());
  Tensor weight = whole_weight(tape, layer);
  weight = to_dtype(std::move(weight), x.dtype());
  Tensor norm = norm_of_sum(out_by_in(layer, weight), tape.detach(lora_weight));
  norm = tape.detach(norm);
  Tensor scale = view(divide(layer.lengths, norm), {1, layer.out_features});
  Tensor low_rank = linear(linear(x, layer.lora_a, {}), layer.lora_b, {});
  Tensor base_result = drops ? linear(x, out_by_in(layer, weight), {}) : bias.defined() ? result - bias : result;
  Tensor changed = subtract_scalar(scale) * base_result;
  Tensor added = multiply_scalar(scale * low_rank);
  Tensor both = changed + added;
  drop(changed, added, base_result, lora_weight, weight, norm, scale, low_rank);
  return result + both;
}

}  // namespace memcalc
