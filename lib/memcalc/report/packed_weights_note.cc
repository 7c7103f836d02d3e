#include "memcalc/report/packed_weights_note.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "memcalc/base/bytes.h"
#include "memcalc/report/quantity.h"
#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/ops/mxfp4.h"

namespace memcalc {

namespace {

struct WeightsOfRun {
  Bytes all = 0;
  Bytes kept = 0;            // of weights that are not packed
  Bytes experts = 0;         // of the experts among these
  DType dtype{};             // of those experts
  Bytes largest_packed = 0;  // of one packed weight, without what it is scaled with
};

bool is_adapter(std::string_view name) { return name.find("lora_") != std::string_view::npos; }

WeightsOfRun sum_up(const std::vector<ParameterInfo>& parameters) {
  WeightsOfRun sums;
  for (const ParameterInfo& each : parameters) {
    if (is_adapter(each.name)) continue;
    if (each.packing != Quantization::kNone) {
      sums.all = checked_add(sums.all, checked_add(each.packed.weight, each.packed.constants));
      sums.largest_packed = std::max(sums.largest_packed, each.packed.weight);
      continue;
    }
    const Bytes bytes = checked_multiply(each.elements, size_of(each.dtype));
    sums.all = checked_add(sums.all, bytes);
    sums.kept = checked_add(sums.kept, bytes);
    if (each.name.find(".experts.") == std::string::npos) continue;
    sums.experts = checked_add(sums.experts, bytes);
    sums.dtype = each.dtype;
  }
  return sums;
}

}  // namespace

std::vector<std::string> notes_on_packed_weights(const SymbolicRun& symbolic, const ModelSpec& model,
                                                 const RunSpec& run, const DeviceSpec& device) {
  const Quantization kind = run.fine_tuning.quantization;
  if (kind == Quantization::kNone || is_fp8_base(kind)) return {};
  const WeightsOfRun sums = sum_up(symbolic.parameters);
  if (!is_native(kind)) {
    if (sums.experts == 0) return {};
    return {fmt::format(
        "experts stay in {}, {} of the {} of weights: {} packs nn.Linear only, and transformers 5 holds a layer's "
        "experts in one parameter",
        name_of(sums.dtype), format_bytes(sums.experts), format_bytes(sums.all), name_of(kind))};
  }
  const bool mxfp4 = kind == Quantization::kMxfp4;
  const bool stored = model.checkpoint_quantization == kind;
  std::vector<std::string> notes{
      fmt::format("{} of the {} of weights stay in {}: {}; the rest is {}, as {}", format_bytes(sums.kept),
                  format_bytes(sums.all), name_of(weights_dtype_of(run)),
                  mxfp4 ? "attention, embeddings, output head, norms, routers (the experts' biases: float32)"
                  : has_experts(model) ? "embeddings, output head, norms, routers"
                                       : "embeddings, output head, norms",
                  mxfp4 ? "MXFP4" : "FP8 in blocks of 128 x 128",
                  stored ? "the checkpoint is stored (--quantize none dequantises it)"
                         : "a checkpoint that was quantised beforehand has it")};
  if (!mxfp4) {
    notes.emplace_back(
        "FP8 products run in the Triton kernels of the package kernels; DeepGEMM, which transformers takes on Hopper "
        "where nvcc is installed, is not modelled");
    return notes;
  }
  notes.emplace_back(
      "the packages kernels 0.16 and triton 3.4 or newer are installed: without them transformers dequantises the "
      "experts (--quantize none)");
  if (is_of(device, CudaArchitecture::kHopper)) {
    notes.push_back(fmt::format(
        "loading takes {} more for a moment, since Hopper's kernel wants the blocks in another order; how much of it "
        "stays reserved depends on the threads that load",
        format_bytes(checked_multiply(kReorderingCopies, sums.largest_packed))));
  }
  return notes;
}

}  // namespace memcalc
