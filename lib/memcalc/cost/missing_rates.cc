// MIRRORS(torch, "aten/src/ATen/native/Convolution.cpp", "2.11.0")
// MIRRORS(torch, "cuda/__init__.py", "2.11.0")
// MIRRORS(transformers, "utils/import_utils.py", "5.17.0")
#include "memcalc/cost/missing_rates.h"

#include <fmt/core.h>

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <utility>

#include "memcalc/cost/kernel_time.h"
#include "memcalc/spec/card_description.h"
#include "memcalc/spec/cuda_architecture.h"

namespace memcalc {

namespace {

/// Products of matrices, attention and convolutions: what multiplies at a rate of its own for each type.
bool multiplies(const Kernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::kMatrixProduct:
    case KernelKind::kGroupedProduct:
    case KernelKind::kConvolution:
    case KernelKind::kCudnnAttention:
    case KernelKind::kFlashAttention:
    case KernelKind::kEfficientAttention: return true;
    default: return false;
  }
}

bool runs_on_card(const Kernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::kPartOfPrevious:
    case KernelKind::kSynchronize:
    case KernelKind::kCopyToDevice:
    case KernelKind::kCopyToHost: return false;
    default: return true;
  }
}

/// The datasheet's figure that a product of this type needs.
std::string rate_of_products(const Kernel& kernel, const DeviceSpec& device) {
  if (kernel.dtype == DType::kBFloat16) {
    return emulates_bfloat16(device) ? "FLOP/s of bfloat16 that is emulated" : "bfloat16 FLOP/s";
  }
  if (kernel.dtype == DType::kFloat16) {
    return has_tensor_cores(device) ? "float16 FLOP/s" : "FLOP/s of float16 summed in float32 without tensor cores";
  }
  if (size_of(kernel.dtype) == 1) return "8-bit FLOP/s";
  return allows_tf32(kernel) && computes_tf32(device) ? "TF32 FLOP/s" : "float32 FLOP/s";
}

/// False where the datasheet has no figure, or one that such kernels cannot reach.
bool knows_products(const Kernel& kernel, const DeviceSpec& device) {
  // What others timed are products. Without tensor cores a datasheet's float16 is that of sums in float16; PyTorch sums
  // in float32.
  const bool product = kernel.kind == KernelKind::kMatrixProduct || kernel.kind == KernelKind::kGroupedProduct;
  const double known = product ? share_of_float32(kernel, device) : 0;
  if (kernel.dtype == DType::kBFloat16 && emulates_bfloat16(device)) return known > 0;
  if (kernel.dtype == DType::kFloat16 && !has_tensor_cores(device)) return known > 0;
  if (size_of(kernel.dtype) == 1 && !has_int8_tensor_cores(device)) return false;
  return peak_flops(kernel, device) > 0;
}

}  // namespace

std::vector<std::string> missing_rates(const KernelList& kernels, const DeviceSpec& device) {
  std::vector<std::string> missing;
  const auto miss = [&](std::string name) {
    if (std::find(missing.begin(), missing.end(), name) == missing.end()) missing.push_back(std::move(name));
  };
  const bool knows_links = device.link_bytes_per_second > 0 || device.pcie_bytes_per_second > 0;
  const bool knows_memory = device.memory_bandwidth_bytes_per_second > 0;
  const bool knows_float32 = device.fp32_flops_per_second > 0;
  std::bitset<std::size_t{1} << 14U> seen;  // kinds of kernels in their types: each asks for the same rates always
  for (const Kernel& kernel : kernels) {
    if (const auto* communication = kernel.as<work::Communication>()) {
      if (!knows_links && communication->ranks > 1) miss("bytes/s between cards (NVLink or PCIe)");
      continue;
    }
    const std::size_t sort = (static_cast<std::size_t>(kernel.kind) << 8U) |
                             (static_cast<std::size_t>(kernel.dtype) << 1U) |
                             static_cast<std::size_t>(allows_tf32(kernel));
    if (seen.test(sort)) continue;
    seen.set(sort);
    if (!runs_on_card(kernel)) continue;
    if (!knows_memory) miss("bytes/s of its memory");
    if (!multiplies(kernel)) {
      if (!knows_float32) miss("float32 FLOP/s");
      continue;
    }
    if (!knows_products(kernel, device)) miss(rate_of_products(kernel, device));
    if (kernel.kind != KernelKind::kConvolution && device.multiprocessors < 1) miss("the number of multiprocessors");
  }
  return missing;
}

std::vector<std::string> substituted_types(const KernelList& kernels, const DeviceSpec& device) {
  const auto any = [&](auto is) { return std::any_of(kernels.begin(), kernels.end(), is); };
  std::vector<std::string> notes;
  // torch/cuda/__init__.py, is_bf16_supported(including_emulation=True): without the hardware a tensor that can be
  // made is enough. transformers/utils/import_utils.py, is_torch_bf16_gpu_available(), asks the same.
  // That it is slow was measured by others: V100, cuBLAS: bfloat16 9.6, float32 14.0, float16 95 TFLOP/s
  // (lablup/mlxcel #1654); T4: less than half of float32 (jax-ml/jax #21212).
  if (emulates_bfloat16(device) &&
      any([](const Kernel& kernel) { return multiplies(kernel) && kernel.dtype == DType::kBFloat16; })) {
    notes.push_back(fmt::format(
        "bfloat16 on {}: emulated by PyTorch, which says that it is supported, and slower than float32 (hardware has "
        "it from compute capability 8.0 on, this card has {})",
        device.name, capability_text(device)));
  }
  // aten/src/ATen/native/Convolution.cpp, use_cudnn(): cuDNN takes bfloat16 from compute capability 8.0 on.
  if (emulates_bfloat16(device) && any([](const Kernel& kernel) {
        return kernel.kind == KernelKind::kConvolution && kernel.dtype == DType::kBFloat16;
      })) {
    notes.push_back(fmt::format(
        "bfloat16 convolutions on {} run without cuDNN: the workspaces that are counted are cuDNN's", device.name));
  }
  // Convolutions carry the flag by torch's own default; a product's says that TF32 was asked for.
  // transformers/utils/import_utils.py, is_torch_tf32_available(), wants compute capability 8.0.
  if (!computes_tf32(device) && is_cuda(device) &&
      any([](const Kernel& kernel) { return kernel.kind == KernelKind::kMatrixProduct && allows_tf32(kernel); })) {
    notes.push_back(
        fmt::format("TF32 on {}: computed in float32, as hardware has TF32 from compute capability 8.0 on and this "
                    "card has {}; transformers' Trainer refuses tf32=True there",
                    device.name, capability_text(device)));
  }
  return notes;
}

}  // namespace memcalc
