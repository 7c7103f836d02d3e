#include "memcalc/models/fine_tuned_linear.h"

#include <utility>

#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// lora_B(lora_A(dropout(x))) * scaling
Tensor low_rank_product(const FineTunedLinear& layer, const Tensor& x) {
  return multiply_scalar(linear(linear(dropout(x, layer.lora_dropout), layer.lora_a, {}), layer.lora_b, {}));
}

}  // namespace

Tensor FineTunedLinear::adapt(const Tensor& x, Tensor result) const {
  const DType result_dtype = result.dtype();
  if (quantized.kind == Quantization::kNone) {   // lora.Linear.forward
    Tensor input = to_dtype(x, lora_a.dtype());  // _cast_input_dtype
    result = result + low_rank_product(*this, input);
    result = to_dtype(result, result_dtype);
    return result;
  }
  // lora.Linear4bit and Linear8bitLt: under autocast nothing is converted.
  if (quantized.kind != Quantization::kInt8) result = clone(result);
  const bool requires_conversion = !x.tape().autocast.has_value();
  Tensor input = requires_conversion ? to_dtype(x, lora_a.dtype()) : x;
  Tensor output = low_rank_product(*this, input);
  if (requires_conversion) output = to_dtype(output, result_dtype);
  result = result + output;
  drop(input, output);
  return result;
}

}  // namespace memcalc
