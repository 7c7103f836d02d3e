#include "memcalc/models/fine_tuned_linear.h"

#include <utility>

#include "memcalc/models/dora.h"
#include "memcalc/symbolic/ops/dtensor.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

Tensor FineTunedLinear::entering(const Tensor& x) const {
  if (sequence == SequencePlan::kLayer) {
    read_as_dtensor(x);
    return x;
  }
  if (sequence == SequencePlan::kHead) return gather_for_products(x, 1, ranks, 1);
  return replicated(x, ranks);
}

Tensor FineTunedLinear::leaving(Tensor partial) const {
  if (sequence == SequencePlan::kLayer) return reduce_and_scatter(partial, 1, ranks, 1);
  return summed_over_ranks(partial, ranks);
}

Tensor FineTunedLinear::gathered(const Tensor& outputs) const {
  const std::optional<SequenceSplit>& split = outputs.tape().modes.sequence_split;
  if (sequence != SequencePlan::kHead || (split && split->loss_parallel)) return outputs;
  return gather_for_all(outputs, -1, ranks);
}

Tensor FineTunedLinear::hooked_low_rank_product(ModuleHooks& hooks, const Tensor& x) const {
  Tensor low =
      between_hooks(hooks, &lora_dropout, {}, x, [this](const Tensor& input) { return dropout(input, lora_dropout); });
  for (const Tensor* weight : {&lora_a, &lora_b}) {
    low = between_hooks(hooks, weight, {weight}, low,
                        [&](const Tensor& input) { return hooks.linear(input, *weight, {}); });
  }
  return multiply_scalar(low);
}

Tensor FineTunedLinear::low_rank_product(const Tensor& x) const {
  ModuleHooks* hooks = x.tape().modes.module_hooks;
  if (hooks != nullptr && hooks->hooks_adapters()) return hooked_low_rank_product(*hooks, x);
  Tensor low = linear(dropout(x, lora_dropout), lora_a, {});
  if (split == LinearSplit::kColumns) low = entering(low);
  if (split == LinearSplit::kRows) low = leaving(std::move(low));
  return multiply_scalar(linear(std::move(low), lora_b, {}));
}

Tensor FineTunedLinear::adapt(const Tensor& x, const Tensor& bias, Tensor result) const {
  if (x.tape().modes.adapters_disabled) return result;
  const DType result_dtype = result.dtype();
  // lora.Linear.forward; else lora.Linear4bit and Linear8bitLt, where under autocast nothing is converted.
  const bool plain = quantized.kind == Quantization::kNone || is_fp8_base(quantized.kind);
  if (!plain && quantized.kind != Quantization::kInt8) result = clone(result);
  const bool converts = plain || !x.tape().modes.autocast.is_on();
  Tensor input = converts ? to_dtype(x, lora_a.dtype()) : x;  // _cast_input_dtype
  if (lengths.defined() || plain) {
    result = lengths.defined() ? with_trained_lengths(*this, input, result, bias) : result + low_rank_product(input);
    if (converts) result = to_dtype(result, result_dtype);
    return result;
  }
  Tensor output = low_rank_product(input);
  if (converts) output = to_dtype(output, result_dtype);
  result = result + output;
  drop(input, output);
  return result;
}

}  // namespace memcalc
