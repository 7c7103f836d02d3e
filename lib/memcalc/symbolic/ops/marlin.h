// Weights of 4 or 8 bits that were quantised beforehand, GPTQ's and AWQ's, in gptqmodel's Marlin kernel: what
// transformers 5.17 takes for both (integrations/awq.py; optimum for GPTQ) where the card has compute capability 8.0 or
// more. Covered by tests/whole/combinations_test.cc (it runs); not measured.
// MIRRORS(transformers, "integrations/awq.py", "5.17.0")
#pragma once

#include "memcalc/symbolic/ops/quantized.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// The parameters of a module as the checkpoint holds them, on the card in the order of their names: g_idx (GPTQ),
/// qweight int32 [in / 8, out], qzeros int32 [in / group, out / 8] (of 8 bits / 4), scales 16-bit [in / group, out].
/// All are kept in `weight.scales`.
void load_marlin(Tape& tape, QuantizedWeight& weight);

/// MarlinLinear.post_init, once the whole model is loaded: a workspace, qweight repacked, scales permuted; GPTQ's
/// symmetric zeros and the group index are dropped, AWQ's zeros permuted.
void repack_marlin(Tape& tape, QuantizedWeight& weight);

/// gptq_marlin_gemm: the result, and while it runs a float32 buffer in which thread blocks meet.
[[nodiscard]] Tensor marlin_linear(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias);

/// Of a module after post_init.
[[nodiscard]] PackedBytes marlin_bytes(const QuantizedWeight& weight, const DeviceSpec& device);

}  // namespace memcalc
