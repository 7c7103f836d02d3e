#include "memcalc/spec/validate_compile.h"

#include <string>

#include "memcalc/base/error.h"
#include "memcalc/spec/parallel_names.h"

namespace memcalc {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kUsage, message); }

/// model(input_ids), then the loss of its logits.
void check_loss_in_loop(const RunSpec& run) {
  if (!run.loss_in_loop) return;
  const std::string what = "loss in loop: ";
  if (run.loop != Loop::kBare || run.inference) refuse(what + "the Trainer's model has it; accepted: --loop bare");
  if (run.task != Task::kCausalLm) refuse(what + "it is that of causal models; accepted: --task causal");
  const Parallel& p = run.parallel;
  const bool shards = p.data_parallel == DataParallel::kFsdp2 || p.data_parallel == DataParallel::kNone;
  if (!shards || p.context > 1 || p.pipeline > 1 || p.expert > 1 || p.framework != Framework::kTorch) {
    refuse(what + "it is modelled beside FSDP2 and tensor parallelism; accepted: --parallel fsdp2, --gpus 1");
  }
  if (run.fine_tuning.liger) refuse(what + "Liger's kernel computes it in the model; accepted: no --liger");
  if (run.use_cache) refuse(what + "beside a cache it is not modelled; accepted: no --use-cache");
  if (run.compile && run.compiled_parts == CompiledParts::kModel) {
    refuse(what +
           "a graph of the whole model without its loss is not modelled; accepted: --compile-parts layers, "
           "layers-loss");
  }
}

/// torch.compile traces through most choices; these change the traced program in ways that are not modelled.
void check_compile(const ModelSpec& model, const RunSpec& run) {
  if (!run.compile) return;
  const std::string what = "compile: ";
  const bool has_layers = run.task != Task::kCustom && model.model_type != "torchvision";
  if (run.compiled_parts != CompiledParts::kModel && !has_layers) {
    refuse(what + "which layers of this model would be compiled is not known; accepted: --compile-parts model");
  }
  const bool is_t5 = model.model_type == "t5" || model.model_type == "mt5";
  if (is_t5 && run.checkpointing == Checkpointing::kFull) {
    refuse(what +
           "under checkpointing T5's cross attention sets requires_grad, which breaks the graph; accepted: "
           "--checkpointing none, selective");
  }
  const Parallel& p = run.parallel;
  if (p.is_parallel()) {
    const bool shards = p.data_parallel == DataParallel::kFsdp2;
    if (!shards || p.tensor > 1 || p.context > 1 || p.pipeline > 1 || p.expert > 1) {
      refuse(what + "on several GPUs it is modelled beside FSDP2 alone; accepted: --parallel fsdp2, --gpus 1");
    }
    if (run.compiled_parts == CompiledParts::kModel) {
      refuse(what + "FSDP2's hooks break a graph of the whole model; accepted: --compile-parts layers, layers-loss");
    }
  }
  if (run.compiled_parts != CompiledParts::kModel && run.loop == Loop::kTrainer) {
    refuse(what + "the Trainer compiles the whole model; accepted: --compile-parts model, or --loop bare");
  }
  if (run.compiled_parts == CompiledParts::kLayersAndLoss && run.task != Task::kCausalLm) {
    refuse(what + "a loss that is compiled by itself is modelled for causal models; accepted: --compile-parts layers");
  }
  if (run.offload_activations) {
    refuse(what +
           "hooks that offload saved tensors are not called inside of a compiled graph; accepted: no "
           "--activation-offload");
  }
  if (run.fine_tuning.quantization != Quantization::kNone) {
    refuse(what + "bitsandbytes' kernels break the graph, and its pieces are not modelled; accepted: --quantize none");
  }
  if (run.fine_tuning.liger) {
    refuse(what + "Liger's kernels break the graph, and its pieces are not modelled; accepted: no --liger");
  }
  if (run.attention == Attention::kFlash) {
    refuse(what +
           "the flash-attn package breaks the graph, and its pieces are not modelled; accepted: --attn sdpa, "
           "eager");
  }
}

/// torchao's float8 training: eager mode writes every step of a cast, which is not modelled.
void check_float8(const ModelSpec& model, const RunSpec& run) {
  if (run.float8 == Float8::kNone) return;
  const std::string what = "float8: ";
  const Parallel& p = run.parallel;
  if (model.model_type != "llama" && model.model_type != "mistral" && model.model_type != "qwen3") {
    refuse(what + "which products of " + model.model_type +
           " are converted is not known; accepted: llama, mistral, qwen3");
  }
  if (!run.compile || run.compiled_parts == CompiledParts::kModel) {
    refuse(what +
           "casts are modelled where the compiler fuses them, and the head stays outside; accepted: --compile "
           "--compile-parts layers, layers-loss");
  }
  const bool bf16 = p.fsdp_param_dtype ? *p.fsdp_param_dtype == DType::kBFloat16 : run.precision == Precision::kBf16;
  if (!bf16) refuse(what + "products return bf16; accepted: --precision bf16, --fsdp-param-dtype bf16");
  if (run.float8 == Float8::kTensorwiseGather && p.data_parallel != DataParallel::kFsdp2) {
    refuse(what + "only FSDP2 gathers weights; accepted: tensorwise, or --parallel fsdp2");
  }
  if (run.float8 == Float8::kTensorwiseGather && p.offload_parameters != OffloadTo::kNowhere) {
    refuse(what + "weights that are gathered from the host are not modelled in float8; accepted: tensorwise");
  }
  if (run.fine_tuning.lora || run.fine_tuning.quantization != Quantization::kNone) {
    refuse(what + "adapters and quantised bases are not converted; accepted: no --lora, --quantize");
  }
}

}  // namespace

void check_compiled_parts(const ModelSpec& model, const RunSpec& run) {
  check_loss_in_loop(run);
  check_compile(model, run);
  check_float8(model, run);
}

}  // namespace memcalc
