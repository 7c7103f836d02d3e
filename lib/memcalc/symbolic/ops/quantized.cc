// bitsandbytes 0.50: autograd/_functions.py (MatMul4Bit, MatMul8bitLt), functional.py (quantize_4bit,
// dequantize_4bit), backends/cuda/ops.py, backends/default/ops.py.
// MIRRORS(bitsandbytes, "autograd/_functions.py", "0.50.2")
// MIRRORS(bitsandbytes, "backends/cuda/ops.py", "0.50.2")
// MIRRORS(bitsandbytes, "backends/default/ops.py", "0.50.2")
// MIRRORS(bitsandbytes, "functional.py", "0.50.2")
#include "memcalc/symbolic/ops/quantized.h"

#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/ops/block_fp8.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/marlin.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/symbolic/vector_quantize.h"

namespace memcalc {

namespace {

constexpr Operator kDequantize{"bitsandbytes::dequantize_4bit"},
    kDequantizeScales{"bitsandbytes::dequantize_blockwise"};
constexpr Operator kGemm4Bit{"bitsandbytes::gemm_4bit"}, kMatMul4Bit{"MatMul4Bit"};
constexpr Operator kQuantize{"bitsandbytes::quantize_4bit"}, kQuantizeScales{"bitsandbytes::quantize_blockwise"};
constexpr Operator kInt8Mm{"bitsandbytes::int8_linear_matmul"};
constexpr Operator kInt8Dequantize{"bitsandbytes::int8_mm_dequant"}, kMatMul8Bit{"MatMul8bitLt"};

constexpr std::int64_t kCodes = 16;          // values of NF4
constexpr std::int64_t kDynamicCodes = 256;  // values of the dynamic map that quantises block scales

std::int64_t elements_of(const QuantizedWeight& weight) {
  return checked_multiply(weight.out_features, weight.in_features);
}

std::int64_t blocks_of(const QuantizedWeight& weight) { return ceil_div(elements_of(weight), kNf4Block); }

/// _gemm_4bit_use_custom_cuda for Hopper: up to how many rows one kernel multiplies without unpacking the weight. On
/// other cards the smallest bound holds for all.
std::int64_t most_rows_in_one_kernel(const QuantizedWeight& weight, DType dtype, const DeviceSpec& device) {
  constexpr std::int64_t kAlways = 4;
  if (weight.in_features % kNf4Block != 0) return 0;
  if (dtype == DType::kFloat32) return 7;
  if (!is_of(device, CudaArchitecture::kHopper)) return kAlways;
  const std::int64_t n = weight.out_features;
  const std::int64_t k = weight.in_features;
  const std::int64_t blocks = ceil_div(n, 64);
  const std::int64_t sms = device.multiprocessors;
  constexpr std::int64_t kSmallWeight = 4 * 1024 * 1024;
  if (elements_of(weight) < kSmallWeight) {
    if (k * 2 < n) return blocks * 3 < sms ? 512 : 320;
    if (blocks * 4 <= sms) return 32;
    return blocks * 2 <= sms ? 16 : kAlways;
  }
  if (blocks >= sms * 3) return 64;
  if (blocks >= sms * 2) return 48;
  if (blocks >= sms) return 32;
  constexpr std::int64_t kBlocksThatLose = 36;
  const bool under_three_quarters = blocks * 4 < sms * 3;
  if (blocks >= sms / 2 && !(k >= n && under_three_quarters)) return 16;
  const bool loses_at_six =
      blocks >= kBlocksThatLose && under_three_quarters && (k > n || (k == n && blocks * 5 >= sms * 3));
  return loses_at_six ? 5 : 7;
}

/// The weight in full, of 4 bits an element: before it the scales of the scales' blocks and their mean.
void record_unpacking(Tape& tape, const QuantizedWeight& weight, DType dtype) {
  const auto elements = static_cast<double>(elements_of(weight));
  tape.kernels.add(kDequantize, OperatorClass::kMovement, dtype, 0,
                   elements * (0.5 + static_cast<double>(size_of(dtype))), KernelKind::kConverting, elements);
  Kernel* kernel = tape.kernels.last();
  if (kernel != nullptr && weight.kind == Quantization::kNf4Double) kernel->launches = 3;
}

/// dequantize_4bit, whose scales of scales are unpacked first.
Tensor dequantize(Tape& tape, const QuantizedWeight& weight, const Shape& shape) {
  Tensor scales;
  if (weight.kind == Quantization::kNf4Double) {
    scales = tape.empty({blocks_of(weight)}, DType::kFloat32, kDequantizeScales);
  }
  Tensor unpacked = tape.empty(shape, weight.source_dtype, kDequantize);
  record_unpacking(tape, weight, weight.source_dtype);
  return unpacked;
}

struct MatMul4BitPayload {
  const QuantizedWeight* weight = nullptr;  // outlives the graph
  Tensor gathered;                          // B, where it is a view that outlives that the parameter is let go
};

void matmul_4bit_backward(BackwardCall& call) {
  const QuantizedWeight& weight = *call.payload<MatMul4BitPayload>().weight;
  const Tensor& gradient = call.gradient();
  Tensor unpacked = dequantize(call.tape, weight, {weight.out_features, weight.in_features});
  const Tensor factor = to_dtype(std::move(unpacked), gradient.dtype());
  call.set(0, linear(gradient, memcalc::t(factor), {}));
}

/// torch.ops.bitsandbytes.gemm_4bit, and the product of the unpacked weight where it falls back.
Tensor gemm_4bit(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias) {
  Tape& tape = x.tape();
  const std::int64_t rows = x.elements() / x.size(-1);
  if (rows <= most_rows_in_one_kernel(weight, x.dtype(), tape.device)) {
    Shape shape = x.shape();
    shape[-1] = weight.out_features;
    tape.kernels.product(kGemm4Bit, x.dtype(), 1, rows, weight.out_features, weight.in_features);
    return tape.empty(shape, x.dtype(), kGemm4Bit);
  }
  record_host_work(tape, HostWork::kUnpackedWeight);
  Tensor scales, shifted;
  if (weight.kind == Quantization::kNf4Double) {
    scales = tape.empty({blocks_of(weight)}, DType::kFloat32, kDequantizeScales);
    shifted = tape.empty({blocks_of(weight)}, DType::kFloat32, aten::kAdd);
  }
  // The old MatMul4Bit unpacks to the type that was packed and converts; gemm_4bit to that of the product.
  const DType dtype = weight.keeps_input ? weight.source_dtype : weight.dtype;
  Tensor unpacked = tape.empty({weight.out_features, weight.in_features}, dtype, kDequantize);
  record_unpacking(tape, weight, dtype);
  unpacked = to_dtype(unpacked, weight.dtype);
  Tensor result = linear(x, unpacked, bias);
  drop(scales, shifted, unpacked);
  return result;
}

Tensor matmul_4bit(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias, const Tensor& gathered) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kMatMul4Bit, matmul_4bit_backward, inputs, 1);
  if (node != nullptr) {
    auto& payload = node->payload.set(MatMul4BitPayload{.weight = &weight, .gathered = {}});
    if (weight.keeps_input) tape.autograd.keep(*node, x);  // ctx.tensors = (A, B), never read
    if (gathered.defined()) payload.gathered = tape.alias(gathered, gathered.shape(), gathered.strides(), false);
  }
  Tensor result;
  record_host_work(tape, HostWork::kPackedLinear);
  {
    const NoGrad no_grad(tape.modes);
    result = gemm_4bit(x, weight, bias);
  }
  tape.autograd.set_history(node, result);
  return result;
}

struct MatMul8BitPayload {
  const QuantizedWeight* weight = nullptr;  // outlives the graph
  DType input = DType::kFloat32;
};

void matmul_8bit_backward(BackwardCall& call) {
  const auto& payload = call.payload<MatMul8BitPayload>();
  const QuantizedWeight& weight = *payload.weight;
  const DType dtype = payload.input;
  Tensor gradient = to_dtype(call.gradient(), dtype);
  Tensor unpacked = call.tape.empty({weight.out_features, weight.in_features}, dtype, aten::kToCopy);
  call.tape.memory.scratch(4 * weight.out_features, aten::kMul);  // SCB / 127
  call.set(0, linear(gradient, t(unpacked), {}));
}

/// A kernel that reads `x` and writes so many bytes for each of its elements.
void record_pass(Tape& tape, const Operator& op, const Tensor& x, double written) {
  const auto elements = static_cast<double>(x.elements());
  tape.kernels.add(op, OperatorClass::kMovement, x.dtype(), 0, static_cast<double>(x.bytes()) + written * elements,
                   KernelKind::kVectorized, elements);
}

/// int8_vectorwise_quant with a threshold, where no column has outliers.
Tensor quantize_rows(const Tensor& x, Tensor& row_scales) {
  Tape& tape = x.tape();
  const std::int64_t rows = x.size(0);
  row_scales = tape.empty({rows}, DType::kFloat32, kVectorQuantize);
  Tensor result = tape.empty(x.shape(), DType::kUInt8, kVectorQuantize);
  Tensor magnitudes = tape.empty(x.shape(), x.dtype(), aten::kAbs);
  Tensor outliers = tape.empty(x.shape(), DType::kBool, aten::kGe);
  record_pass(tape, aten::kAbs, x, static_cast<double>(size_of(x.dtype())));
  record_pass(tape, aten::kGe, x, 1);
  magnitudes.reset();
  {
    const Tensor any = tape.empty({}, DType::kBool, aten::kAny);
    reduction_scratch(outliers, 0b11, 1, aten::kAny);
    record_pass(tape, aten::kAny, outliers, 0);
    read_on_host(any);  // if outliers.any()
  }
  record_pass(tape, kVectorQuantize, x, 1);
  if (rows > 1) {  // out_row[:, outlier_cols] = 0: a number is copied to the card, no column is set
    tape.memory.scratch(1, aten::kToCopy);
    tape.kernels.add(aten::kToCopy, OperatorClass::kMovement, result.dtype(), 0, 1);
    tape.kernels.add(aten::kIndexPutImpl, OperatorClass::kMovement, result.dtype(), 0, 0);
  }
  return result;
}

Tensor matmul_8bit(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kMatMul8Bit, matmul_8bit_backward, inputs, 1);
  if (node != nullptr) node->payload.set(MatMul8BitPayload{.weight = &weight, .input = x.dtype()});
  Tensor result;
  Tensor flat;
  record_host_work(tape, HostWork::kInt8Linear);
  if (x.dtype() != DType::kFloat16) record_host_work(tape, HostWork::kInt8Warning);
  {
    const NoGrad no_grad(tape.modes);
    flat = reshape(x, {x.elements() / x.size(-1), x.size(-1)});
    Tensor row_scales, quantized;
    {
      const Tensor half = to_dtype(flat, DType::kFloat16);
      quantized = quantize_rows(half, row_scales);
    }
    const std::int64_t rows = flat.size(0);
    Tensor accumulated = tape.empty({rows, weight.out_features}, DType::kInt32, kInt8Mm);
    tape.kernels.product(kInt8Mm, DType::kUInt8, 1, rows, weight.out_features, weight.in_features);
    {
      const Tensor output = tape.empty({rows, weight.out_features}, DType::kFloat16, kInt8Dequantize);
      record_pass(tape, kInt8Dequantize, accumulated, static_cast<double>(size_of(DType::kFloat16)));
      result = to_dtype(output, x.dtype());
    }
    accumulated.reset();
    Shape shape = x.shape();
    shape[-1] = weight.out_features;
    result = view(result, shape);
    drop(quantized, row_scales);
    (void)bias;  // added in place
  }
  if (node != nullptr) tape.autograd.keep(*node, flat);  // ctx.tensors = (CAt, subA, A)
  tape.autograd.set_history(node, result);
  return result;
}

/// F.linear whose weight autocast casts (aten/src/ATen/autocast_mode.cpp: float8 is not float32, so the copy is not
/// cached), or musubi-tuner's fp8_linear_forward_patch (modules/fp8_optimization_utils.py), whose scaled copy is made
/// of an unscaled one.
Tensor fp8_base_linear(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias) {
  Tape& tape = x.tape();
  const Shape shape{weight.out_features, weight.in_features};
  const auto elements = static_cast<double>(elements_of(weight));
  Tensor unpacked = tape.empty(shape, weight.dtype, aten::kToCopy);
  tape.kernels.add(aten::kToCopy, OperatorClass::kMovement, weight.dtype, 0,
                   elements * (1.0 + static_cast<double>(size_of(weight.dtype))), KernelKind::kConverting, elements);
  if (weight.kind == Quantization::kFp8Scaled) {
    Tensor scaled = tape.empty(shape, weight.dtype, aten::kMul);
    tape.kernels.add(aten::kMul, OperatorClass::kElementwise, weight.dtype, elements,
                     2 * elements * static_cast<double>(size_of(weight.dtype)));
    unpacked = std::move(scaled);
  }
  return linear(x, unpacked, bias);
}

}  // namespace

Tensor unpacked(Tape& tape, const QuantizedWeight& weight, const Shape& shape) {
  const NoGrad no_grad(tape.modes);
  return dequantize(tape, weight, shape);
}

Tensor quantized_linear(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias, const Tensor& gathered) {
  if (weight.kind == Quantization::kInt8) return matmul_8bit(x, weight, bias);
  if (weight.kind == Quantization::kFp8) return block_fp8_linear(x, weight, bias);
  if (is_marlin(weight.kind)) return marlin_linear(x, weight, bias);
  if (is_fp8_base(weight.kind)) return fp8_base_linear(x, weight, bias);
  const DType input_dtype = x.dtype();
  Tensor input = to_dtype(x, weight.dtype);  // bnb_4bit_compute_dtype
  if (bias.defined() && bias.dtype() != weight.dtype) x.tape().convert(bias, weight.dtype, aten::kToCopy);
  return to_dtype(matmul_4bit(input, weight, bias, gathered), input_dtype);
}

PackedBytes packed_bytes(Quantization kind, std::int64_t out_features, std::int64_t in_features) {
  const std::int64_t elements = checked_multiply(out_features, in_features);
  const std::int64_t blocks = ceil_div(elements, kNf4Block);
  switch (kind) {
    case Quantization::kNone:
    case Quantization::kMxfp4:  // of experts only: mxfp4_bytes
    case Quantization::kFp8:    // block_fp8_bytes
    case Quantization::kGptq4:
    case Quantization::kGptq8:
    case Quantization::kAwq4: return {};  // marlin_bytes
    case Quantization::kInt8: return {.weight = elements, .constants = 4 * out_features};
    case Quantization::kFp8Cast: return {.weight = elements};
    case Quantization::kFp8Scaled:
      return {.weight = elements, .constants = 2 * checked_multiply(out_features, fp8_scales_of_row(in_features))};
    case Quantization::kNf4: return {.weight = ceil_div(elements, 2), .constants = 4 * blocks + 4 * kCodes};
    case Quantization::kNf4Double: break;
  }
  // Scales in a byte each, their own scales and offset, the two maps of codes.
  return {.weight = ceil_div(elements, 2),
          .constants = blocks + 4 * ceil_div(blocks, kScaleBlock) + 4 + 4 * kCodes + 4 * kDynamicCodes};
}

PackedBytes packed_bytes(const QuantizedWeight& weight, const DeviceSpec& device) {
  if (weight.kind == Quantization::kFp8) return block_fp8_bytes(weight);
  if (is_marlin(weight.kind)) return marlin_bytes(weight, device);
  return packed_bytes(weight.kind, weight.out_features, weight.in_features);
}

Tensor quantize(const Tensor& source, QuantizedWeight& weight) {
  Tape& tape = source.tape();
  Tensor transposed;  // Params4bit(value.T), which is made row-major on the card; of int8 on the host
  if (weight.transposes && weight.kind != Quantization::kInt8) {
    transposed = tape.empty({weight.out_features, weight.in_features}, source.dtype(), aten::kToCopy);
  }
  weight.source_dtype = source.dtype();
  const auto part = [&](const Shape& shape, DType dtype, const Operator& op) {
    return tape.empty(shape, dtype, op, Category::kWeights);
  };
  if (weight.kind == Quantization::kInt8) {
    const Tensor half = tape.empty(source.shape(), DType::kFloat16, aten::kToCopy);
    weight.scales.push_back(part({weight.out_features}, DType::kFloat32, kVectorQuantize));
    return part(source.shape(), DType::kUInt8, kVectorQuantize);
  }
  const bool doubly = weight.kind == Quantization::kNf4Double;
  const Shape blocks{blocks_of(weight)};
  Tensor scales = part(blocks, DType::kFloat32, kQuantize);
  Tensor packed = part({ceil_div(elements_of(weight), 2)}, DType::kUInt8, kQuantize);
  weight.scales.push_back(part({kCodes}, DType::kFloat32, aten::kToCopy));
  {
    Tensor magnitudes = tape.empty({kCodes}, DType::kFloat32, aten::kAbs);
    const Tensor largest = tape.empty({}, DType::kFloat32, aten::kMax);
    magnitudes.reset();
  }
  if (!doubly) {
    weight.scales.push_back(std::move(scales));
    return packed;
  }
  weight.scales.push_back(part({}, DType::kFloat32, aten::kMean));  // the offset
  reduction_scratch(scales, 0b1, 4, aten::kMean);
  Tensor centred = tape.empty(blocks, DType::kFloat32, aten::kSub);
  if (!tape.modes.has_dynamic_map) {  // get_4bit_type's map is made once and stays on the card
    tape.modes.has_dynamic_map = true;
    weight.scales.push_back(part({kDynamicCodes}, DType::kFloat32, aten::kToCopy));
  }
  weight.scales.push_back(part({ceil_div(blocks[0], kScaleBlock)}, DType::kFloat32, kQuantizeScales));
  weight.scales.push_back(part(blocks, DType::kUInt8, kQuantizeScales));
  weight.scales.push_back(part({kDynamicCodes}, DType::kFloat32, aten::kToCopy));
  drop(scales, centred);
  return packed;
}

}  // namespace memcalc
