#include "memcalc/spec/validate_torch.h"

#include <algorithm>
#include <optional>
#include <string>
#include <variant>

#include "memcalc/base/error.h"
#include "memcalc/spec/parallel_names.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/spec/validate_parallel.h"

namespace memcalc {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kUsage, message); }

/// torch's: parallelize_module of the layers. What is not split stays a plain tensor, or becomes a DTensor on the
/// data-parallel dimension of the mesh alone (fsdp2); under ddp all are plain, the local tensors of DTensors.
/// The same holds for experts, which are DTensors, and the rest.
void check_whole_plan(const ModelSpec& model, const RunSpec& run);

void check_tensor_parallel(const ModelSpec& model, const RunSpec& run) {
  const DataParallel mode = run.parallel.data_parallel;
  const std::string name = run.parallel.tensor > 1 ? "tp" : "ep";
  if (mode != DataParallel::kNone && mode != DataParallel::kDdp && mode != DataParallel::kFsdp2) {
    refuse("tp beside parallel " + std::string(name_of(mode)) + " is not modelled; accepted: fsdp2, ddp");
  }
  if (run.parallel.sequence_parallel) return check_whole_plan(model, run);
  const bool mixes = mode == DataParallel::kNone;
  if (mixes && run.optimizer != Optimizer::kAdamWForLoop && run.optimizer != Optimizer::kAdagradForLoop) {
    refuse("optimizer " + std::string(name_of(run.optimizer)) +
           ": foreach and fused optimizers refuse a mixture of DTensors and tensors, which " + name +
           " makes of a model's parameters; accepted: adamw-for, adagrad-for");
  }
  if (mode == DataParallel::kDdp) return;
  const std::string kinds = mixes ? "DTensors and tensors" : "DTensors of two meshes";
  if (run.max_grad_norm) {
    refuse("gradient clipping: clip_grad_norm_ stacks the norms of all gradients, which " + name + " makes " + kinds +
           "; accepted: no clipping");
  }
  if (mixes && run.precision == Precision::kAmpFp16) {
    refuse("precision amp-fp16: the loss scaler unscales all gradients at once, which " + name + " makes " + kinds +
           "; accepted: amp-bf16, bf16, fp32");
  }
  if (!mixes && run.optimizer == Optimizer::kAdafactorTorch) {
    refuse(
        "optimizer adafactor-torch: it changes DTensors on two dimensions of a mesh in place, which torch refuses; "
        "accepted: adamw");
  }
}

/// The plan of torch's tutorial and of torchtitan, which splits the sequence between the layers' products, the
/// embedding and the head: every parameter is a DTensor of one mesh.
void check_whole_plan(const ModelSpec& model, const RunSpec& run) {
  const Parallel& p = run.parallel;
  const std::string tp = "tp " + std::to_string(p.tensor);
  if (p.data_parallel == DataParallel::kDdp) refuse("sp beside parallel ddp is not modelled; accepted: fsdp2");
  if (p.pipeline > 1 || p.context > 1 || p.expert > 1) {
    refuse("sp beside " +
           std::string(p.pipeline > 1  ? "pp"
                       : p.context > 1 ? "cp"
                                       : "ep") +
           " is not modelled under torch; accepted: --framework megatron");
  }
  if (model.model_type != "llama" && model.model_type != "mistral" && model.model_type != "qwen2") {
    refuse("sp: no plan is modelled that splits the sequence of " + model.model_type +
           "; accepted: llama, mistral, qwen2");
  }
  if (run.task != Task::kCausalLm) refuse("sp: accepted: --task causal");
  if (run.fine_tuning.lora) refuse("sp: adapters on layers that ranks share are not modelled beside it");
  if (run.sequence_length % p.tensor != 0) {
    refuse("sp: " + tp + " does not divide the sequence length " + std::to_string(run.sequence_length));
  }
  if (run.padding)
    refuse("sp: a mask of the whole sequence beside a part of it is not modelled; accepted: no --padding");
  if (run.attention == Attention::kEager) refuse("sp: accepted: --attn sdpa, flash");
  if (run.compile || run.fine_tuning.liger)
    refuse("sp: compiled layers and Liger's kernels are not modelled beside it");
  if (run.checkpointing != Checkpointing::kNone && run.checkpointing != Checkpointing::kFull) {
    refuse("sp: accepted: --checkpointing none, full");
  }
  if (run.offload_activations || run.offload_optimizer || run.offload_gradients) refuse("sp: offload is not modelled");
  if (run.precision == Precision::kAmpFp16) refuse("sp: a loss scaler is not modelled; accepted: bf16, amp-bf16, fp32");
  if (run.max_grad_norm) refuse("sp: gradient clipping is not modelled; accepted: no clipping");
  if (p.data_parallel == DataParallel::kNone && run.optimizer != Optimizer::kAdamWForeach &&
      run.optimizer != Optimizer::kAdam) {
    refuse("sp: how optimizer " + std::string(name_of(run.optimizer)) +
           " brings gradients into their parameters' layout is not modelled; accepted: adamw, adam");
  }
}

std::optional<std::int64_t> experts_of(const ModelSpec& model) {
  return std::visit(
      [](const auto& spec) -> std::optional<std::int64_t> {
        if constexpr (requires { spec.experts.count; }) return spec.experts.count;
        return std::nullopt;
      },
      model.architecture);
}

/// transformers' base_model_ep_plan, in the place of its plan for tensor parallelism; beside fully_shard its
/// DistributedConfig takes neither.
void check_expert_parallel(const ModelSpec& model, const RunSpec& run) {
  const Parallel& p = run.parallel;
  const std::string ep = "ep " + std::to_string(p.expert);
  const std::optional<std::int64_t> experts = experts_of(model);
  if (!experts)
    refuse(ep + ": " + model.model_type + " has no experts; accepted: mixtral, qwen3_moe, deepseek, gpt_oss");
  if (*experts % p.expert != 0) {
    refuse(ep + " does not divide the " + std::to_string(*experts) + " experts of " + model.name);
  }
  if (p.gpus > p.expert) {
    refuse(ep + " beside other ways to use the " + std::to_string(p.gpus) +
           " GPUs: transformers applies its expert parallel plan alone; accepted: --gpus " + std::to_string(p.expert) +
           ", or --framework megatron");
  }
  if (run.fine_tuning.lora) refuse(ep + ": adapters beside experts that ranks share are not modelled yet");
}

/// nn.DataParallel.
void check_module_replicas(const RunSpec& run) {
  if (run.parallel.nodes > 1) refuse("dp: nn.DataParallel is one process on one host; accepted: --parallel ddp");
  if (run.use_cache) refuse("use_cache: nn.DataParallel cannot gather a key/value cache");
  if (run.accumulation_steps > 1) refuse("dp: micro-batches that accumulate are not modelled; accepted: --accum 1");
}

/// torch.distributed.tensor.experimental.context_parallel.
void check_context_parallel(const RunSpec& run) {
  const Parallel& p = run.parallel;
  const std::string cp = "cp " + std::to_string(p.context);
  if (p.context_type == ContextParallel::kUlysses) {
    refuse(
        "cp type ulysses: torch's context_parallel gathers keys and values or passes them on; accepted: all-gather, "
        "ring; with --framework megatron: ulysses");
  }
  if (run.task != Task::kCausalLm) {
    refuse(cp + ": context_parallel's load balancing needs causal attention; accepted: --task causal");
  }
  if (run.sequence_length % (2 * p.context) != 0) {
    refuse(cp + ": sequence length " + std::to_string(run.sequence_length) +
           " is no multiple of 2 x cp = " + std::to_string(2 * p.context) + ", into which load balancing cuts it");
  }
  if (run.attention != Attention::kSdpa)
    refuse(cp + ": only scaled_dot_product_attention is replaced; accepted: --attn sdpa");
  if (run.padding) refuse(cp + ": context_parallel takes no attention mask; accepted: no --padding");
  if (run.checkpointing == Checkpointing::kSelective) {
    refuse(cp + ": selective checkpointing around ring attention is not modelled yet; accepted: full, none");
  }
}

std::optional<std::int64_t> decoder_layers(const ModelSpec& model) {
  return std::visit(
      [](const auto& spec) -> std::optional<std::int64_t> {
        if constexpr (requires { spec.num_hidden_layers; }) return spec.num_hidden_layers;
        return std::nullopt;
      },
      model.architecture);
}

/// torch's schedules of several stages a rank run micro-batches in rounds.
void check_rounds(const Parallel& p, std::int64_t micro_batches) {
  const std::int64_t rounds = std::max<std::int64_t>(1, micro_batches / p.pipeline);
  if (micro_batches % rounds == 0) return;
  refuse("micro batches " + std::to_string(micro_batches) + ": torch's schedule wants a multiple of its " +
         std::to_string(rounds) + " rounds (micro-batches // pp)");
}

/// A backward in two halves, of which the second goes around autograd's hooks and finds weights by module.parameters().
void check_zero_bubble(const RunSpec& run) {
  const Parallel& p = run.parallel;
  const std::string schedule = "schedule " + std::string(name_of(p.schedule));
  if (p.data_parallel == DataParallel::kDdp) {
    refuse(schedule +
           ": gradients of a backward's second half reach no hook of DistributedDataParallel, whose ranks would never "
           "average them; accepted: --parallel fsdp2 --no-reshard-after-forward");
  }
  if (p.data_parallel == DataParallel::kFsdp2 && p.reshard_after_forward) {
    refuse(schedule +
           ": parameters that fully_shard takes away after forward are not found by a backward's first half, and torch "
           "then computes no gradient of them; accepted: --no-reshard-after-forward");
  }
  if (p.data_parallel == DataParallel::kFsdp2 && run.checkpointing != Checkpointing::kNone) {
    refuse(schedule +
           ": layers that are recomputed in the second half of a backward, outside of fully_shard's, are not modelled; "
           "accepted: --checkpointing none");
  }
  if (run.checkpointing == Checkpointing::kSelective) {
    refuse(schedule +
           ": torch runs a selectively checkpointed layer backward once only, not in two halves; accepted: "
           "--checkpointing none, full");
  }
}

void check_stage_layers(const Parallel& p, std::int64_t layers) {
  if (p.stage_layers.empty()) return;
  const auto stages = static_cast<std::size_t>(p.pipeline * p.virtual_stages);
  if (p.stage_layers.size() != stages) {
    refuse("stage layers: " + std::to_string(p.stage_layers.size()) + " numbers for " + std::to_string(stages) +
           " stages");
  }
  std::int64_t sum = 0;
  for (const std::int64_t each : p.stage_layers) {
    if (each < 1 || each > layers) refuse("stage layers: each stage has 1 to " + std::to_string(layers));
    sum += each;
  }
  if (sum != layers) {
    refuse("stage layers: together " + std::to_string(sum) + ", but the model has " + std::to_string(layers));
  }
}

void check_schedule(const RunSpec& run, std::int64_t micro_batches) {
  const Parallel& p = run.parallel;
  switch (p.schedule) {
    case PipelineSchedule::kZeroBubble: check_zero_bubble(run); return check_rounds(p, micro_batches);
    case PipelineSchedule::kZeroBubbleV:
      if (p.virtual_stages != 2) refuse("schedule zbv: two stages a rank; accepted: --virtual-stages 2");
      return check_zero_bubble(run);
    case PipelineSchedule::kInterleaved:
      if (p.virtual_stages == 1) refuse("schedule interleaved: one stage a rank; give --virtual-stages 2 or more");
      return check_rounds(p, micro_batches);
    default:
      if (p.virtual_stages > 1) refuse("virtual stages: accepted with --schedule interleaved, zero-bubble or zbv");
      if (p.schedule == PipelineSchedule::kOneForwardOneBackward && micro_batches < p.pipeline) {
        refuse("micro batches " + std::to_string(micro_batches) + ": Schedule1F1B wants as many as stages, " +
               std::to_string(p.pipeline) + ", or more");
      }
  }
}

/// torch.distributed.pipelining.
void check_pipeline(const ModelSpec& model, const RunSpec& run) {
  constexpr std::int64_t kMostMicroBatches = 256;
  const Parallel& p = run.parallel;
  const std::string pp = "pp " + std::to_string(p.pipeline);
  const std::int64_t micro_batches = p.micro_batches == 0 ? p.pipeline : p.micro_batches;
  const DataParallel mode = p.data_parallel;
  if (mode != DataParallel::kNone && mode != DataParallel::kDdp && mode != DataParallel::kFsdp2) {
    refuse(pp + " beside parallel " + std::string(name_of(mode)) + " is not modelled; accepted: fsdp2, ddp");
  }
  if (mode == DataParallel::kDdp && p.ddp_static_graph) {
    refuse(pp + ": PipelineStage prepares DDP's reducer for the last backward itself; accepted: no --ddp-static-graph");
  }
  if (p.offload_parameters != OffloadTo::kNowhere) {
    refuse(pp + ": offloaded stages are not modelled; accepted: no --offload-parameters");
  }
  const std::optional<std::int64_t> layers = decoder_layers(model);
  if (!layers) refuse(pp + ": " + model.model_type + " cannot be cut into stages; accepted: decoders such as llama");
  if (p.pipeline * p.virtual_stages > *layers) {
    refuse(pp + (p.virtual_stages > 1 ? " x " + std::to_string(p.virtual_stages) + " virtual stages" : "") +
           ": more stages than the " + std::to_string(*layers) + " layers of " + model.name);
  }
  check_stage_layers(p, *layers);
  if (run.task != Task::kCausalLm) refuse(pp + ": stages are modelled of decoders; accepted: --task causal");
  if (run.padding) refuse(pp + ": stages get no attention mask; accepted: no --padding");
  if (run.precision == Precision::kAmpFp16) {
    refuse(pp +
           ": torch's schedules run the backward themselves and know no loss scaler; accepted: amp-bf16, bf16, fp32");
  }
  if (run.accumulation_steps > 1) refuse(pp + ": a step's micro-batches are the pipeline's; accepted: --micro-batches");
  if (micro_batches > kMostMicroBatches) {
    refuse("micro batches " + std::to_string(micro_batches) + ": under torch at most " +
           std::to_string(kMostMicroBatches) + " are modelled");
  }
  check_schedule(run, micro_batches);
}

/// fully_shard's CPUOffloadPolicy.
void check_offload(const Parallel& p) {
  if (p.offload_states == OffloadTo::kNowhere && p.offload_parameters == OffloadTo::kNowhere) return;
  if (p.data_parallel != DataParallel::kFsdp2) {
    refuse("offload of " + std::string(name_of(p.data_parallel)) +
           "'s states is not modelled; accepted: --parallel fsdp2, or --framework deepspeed");
  }
  if (p.offload_states == OffloadTo::kNvme || p.offload_parameters == OffloadTo::kNvme) {
    refuse("offload to nvme: torch's FSDP offloads to host memory; accepted: host");
  }
  if (p.offload_parameters == OffloadTo::kNowhere) {
    refuse(
        "offload states: FSDP2's CPUOffloadPolicy moves parameters, gradients and states together; give "
        "--offload-parameters host");
  }
}

bool ties_embeddings(const ModelSpec& model) {
  return std::visit(
      [](const auto& spec) {
        if constexpr (requires { spec.tie_word_embeddings; }) return spec.tie_word_embeddings;
        return false;
      },
      model.architecture);
}

/// What accelerate 1.15 makes of a model on several GPUs.
void check_trainer(const ModelSpec& model, const RunSpec& run) {
  const Parallel& p = run.parallel;
  if (p.tensor > 1 || p.context > 1 || p.pipeline > 1 || p.expert > 1) {
    refuse("loop trainer: how accelerate prepares a model for " +
           std::string(p.tensor > 1     ? "tp"
                       : p.context > 1  ? "cp"
                       : p.pipeline > 1 ? "pp"
                                        : "ep") +
           " is not modelled; accepted: --loop bare");
  }
  if (p.data_parallel == DataParallel::kDdp || p.data_parallel == DataParallel::kDp) return;
  const std::string mode(name_of(p.data_parallel));
  if (p.data_parallel != DataParallel::kFsdp2 && p.data_parallel != DataParallel::kFsdp1) {
    refuse("loop trainer: how accelerate prepares a model for " + mode +
           " is not modelled; accepted: --loop bare, or --parallel ddp, dp, fsdp1 or fsdp2");
  }
  if (run.precision == Precision::kAmpFp16) {
    refuse("loop trainer: " + mode + " with a loss scaler is not modelled; accepted: --precision amp-bf16, bf16, fp32");
  }
  if (p.data_parallel == DataParallel::kFsdp1) {  // accelerate wraps _no_split_modules: of decoders their layers
    if (run.task == Task::kCausalLm) return;
    refuse(
        "loop trainer: fsdp1 is modelled of decoders, of which accelerate wraps the layers alone; accepted: --task "
        "causal, or --loop bare");
  }
  if (run.task != Task::kCausalLm || !ties_embeddings(model)) {
    refuse(
        "loop trainer: accelerate makes units of the embedding and of the final norm with the head, which is modelled "
        "where the two share their weight (causal models with tied embeddings); accepted: --loop bare");
  }
}

}  // namespace

void check_torch_parallel(const ModelSpec& model, const RunSpec& run) {
  const Parallel& p = run.parallel;
  if (p.pipeline > 1) check_pipeline(model, run);
  if (p.data_parallel == DataParallel::kDp) check_module_replicas(run);
  if (run.loop == Loop::kTrainer) check_trainer(model, run);
  if (p.context > 1 && p.framework == Framework::kTorch) check_context_parallel(run);
  if (p.expert > 1) check_expert_parallel(model, run);
  if (p.sequence_parallel && p.tensor == 1) refuse("sp: the sequence is split among tensor-parallel ranks; give --tp");
  if (p.loss_parallel && !p.sequence_parallel) refuse("loss parallel: modelled with --sp; give --tp and --sp");
  if (p.tensor > 1 || p.expert > 1) check_tensor_parallel(model, run);
  if (p.framework != Framework::kDeepSpeed) check_offload(p);
}

}  // namespace memcalc
