// MIRRORS(accelerate, "accelerator.py", "1.15.0")
// MIRRORS(accelerate, "utils/fsdp_utils.py", "1.15.0")
// MIRRORS(torch, "amp/grad_scaler.py", "2.11.0")
// MIRRORS(torch, "aten/src/ATen/native/cuda/AmpKernels.cu", "2.11.0")
#include "memcalc/spec/loaded_dtype.h"

#include <fmt/core.h>

#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/parallel.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

/// torch mixes by autocast; DeepSpeed and Megatron hold 16-bit weights beside float32 ones of the optimizer's. What the
/// Trainer is told is bf16=True, whatever it runs.
Precision mixed_precision(DType type, Framework framework, bool in_trainer) {
  const bool brain = type == DType::kBFloat16;
  if (framework == Framework::kTorch || in_trainer) return brain ? Precision::kAmpBf16 : Precision::kAmpFp16;
  return brain ? Precision::kBf16 : Precision::kFp16;
}

/// The precision that computes in the type of the weights, without autocast.
Precision precision_of(DType weights) {
  if (weights == DType::kBFloat16) return Precision::kBf16;
  return weights == DType::kFloat16 ? Precision::kFp16 : Precision::kFp32;
}

std::optional<Precision> precision_asked(const RunOptions& options, bool in_trainer) {
  if (options.precision) return options.precision;
  if (options.mixed_precision) return mixed_precision(*options.mixed_precision, framework_asked(options), in_trainer);
  if (options.weights_dtype) return precision_of(*options.weights_dtype);
  return std::nullopt;
}

/// accelerate/utils/fsdp_utils.py, fsdp2_prepare_model(), and accelerator.py, prepare_model(): with mixed precision
/// FSDP's parameters are float32, and its policy gathers them in 16 bits. In the Trainer this is so of what trains: a
/// frozen base stays as it is.
const char* sharded_in_float32(const RunOptions& options, std::optional<Precision> precision, bool in_trainer) {
  const DataParallel mode = options.parallel.data_parallel;
  const bool sharded = mode == DataParallel::kFsdp1 || mode == DataParallel::kFsdp2;
  const bool is_frozen = in_trainer && sharded && options.lora_rank;
  if (in_trainer && mode == DataParallel::kFsdp2 &&
      options.profile.behaviors.fsdp2_upcasts == Fsdp2Upcast::kNothing) {  // accelerate 1.13
    return nullptr;
  }
  const bool mixes = options.torch.fsdp_param_dtype || (precision && is_autocast(*precision));
  return sharded && !is_frozen && mixes ? "FSDP with mixed precision shards float32 weights" : nullptr;
}

bool is_fsdp1(const RunOptions& options) { return options.parallel.data_parallel == DataParallel::kFsdp1; }

/// Why weights are float32 all the same, though they are stored in 16 bits; null where nothing keeps them so.
const char* kept_in_float32(const RunOptions& options, std::optional<Precision> precision, bool in_trainer) {
  if (const char* reason = sharded_in_float32(options, precision, in_trainer)) return reason;
  // torch/amp/grad_scaler.py, _unscale_grads_(), and aten/src/ATen/native/cuda/AmpKernels.cu.
  const bool adapts = options.lora_rank && !options.lora_in_base_dtype;
  const bool scales = framework_asked(options) != Framework::kDeepSpeed;  // whose optimizer has float32 weights
  if (precision == Precision::kAmpFp16 && scales && !options.inference && !adapts) {
    return "the loss scaler of fp16 takes no 16-bit gradients";
  }
  return nullptr;
}

}  // namespace

void resolve_loaded_dtype(const ModelSpec& model, const RunOptions& options, RunSpec& run,
                          std::vector<std::string>& assumptions) {
  const bool in_trainer = !options.inference && run.uses_trainer();
  const std::optional<Precision> asked = precision_asked(options, in_trainer);
  run.weights_dtype = options.weights_dtype;
  const bool stored_in_half = model.checkpoint_dtype && is_half(*model.checkpoint_dtype);
  // DeepSpeed and Megatron convert the weights to the type that they compute in; the Trainer loads them before.
  const bool loads = framework_asked(options) == Framework::kTorch || (in_trainer && asked);
  const bool loads_as_stored = stored_in_half && !options.weights_dtype && loads && (!asked || is_autocast(*asked)) &&
                               !run.profile.behaviors.loads_in_float32;
  if (loads_as_stored) {
    const std::string_view stored = name_of(*model.checkpoint_dtype);
    if (const char* reason = kept_in_float32(options, asked, in_trainer)) {
      assumptions.push_back(fmt::format("weights are float32: {} (the checkpoint is stored in {})", reason, stored));
      const bool is_cast = in_trainer && sharded_in_float32(options, asked, in_trainer) != nullptr;
      if (is_cast && is_fsdp1(options)) run.training().sharded_from = model.checkpoint_dtype;
    } else {
      run.weights_dtype = model.checkpoint_dtype;
      run.precision = asked.value_or(precision_of(*model.checkpoint_dtype));
      assumptions.push_back(
          fmt::format("weights are {}, as the checkpoint is stored and transformers 5 loads it{} (--weights-dtype)",
                      stored, asked ? "" : ", and the run computes in it"));
      return;
    }
  }
  run.precision = asked.value_or(Precision::kFp32);
  if (in_trainer && options.weights_dtype && is_half(*options.weights_dtype)) {
    if (const char* reason = sharded_in_float32(options, asked, in_trainer)) {
      assumptions.push_back(
          fmt::format("weights are float32: {} (they are loaded in {})", reason, name_of(*options.weights_dtype)));
      if (is_fsdp1(options)) run.training().sharded_from = run.weights_dtype;
      run.weights_dtype = DType::kFloat32;
      // trl 1.16, models/utils.py, prepare_fsdp: nobody casts a second model.
      if (run.trains()) run.training().reference_in_half = run.training().reference == Reference::kModel;
    }
  }
  if (!asked) assumptions.emplace_back("precision fp32: none was given (--precision, --fp16, --bf16)");
}

// The Trainer leaves a model that FSDP1 will shard in host memory (place_model_on_device is off); of a typed --load
// nothing is assumed. FSDP2's and DeepSpeed's come from there in any case.
ModelLoading resolve_loading(const ModelSpec& model, const RunOptions& options, const RunSpec& run,
                             std::vector<std::string>& assumptions) {
  if (options.loading) return *options.loading;
  const bool packs = options.quantization.value_or(Quantization::kNone) != Quantization::kNone;
  if (packs || options.unsloth) return ModelLoading::kDeviceMap;
  const bool shards = options.parallel.data_parallel == DataParallel::kFsdp1 && options.gpus.value_or(1) > 1;
  if (!shards || !run.uses_trainer() || !is_of_transformers(model)) return ModelLoading::kConfig;
  assumptions.emplace_back(
      "from_pretrained reads the model on each rank's host, and FSDP1 moves it unit by unit (--load)");
  return ModelLoading::kHost;
}

}  // namespace memcalc
