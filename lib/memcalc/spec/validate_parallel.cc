#include "memcalc/spec/validate_parallel.h"

#include <algorithm>
#include <array>
#include <variant>

#include "memcalc/base/bytes.h"
#include "memcalc/base/error.h"
#include "memcalc/spec/parallel_names.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/spec/validate.h"
#include "memcalc/spec/validate_megatron.h"

namespace memcalc {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kUsage, message); }

constexpr std::int64_t kMostGpus = std::int64_t{1} << 20;

std::int64_t model_ranks(const Parallel& p) {
  return checked_multiply(checked_multiply(p.tensor, p.context), p.pipeline);
}

/// "tp 4 x pp 2 = 8"
std::string product_of(const Parallel& p) {
  std::string text;
  const auto add = [&](const char* name, std::int64_t size) {
    if (size > 1) text += (text.empty() ? "" : " x ") + std::string(name) + " " + std::to_string(size);
  };
  add("tp", p.tensor);
  add("cp", p.context);
  add("pp", p.pipeline);
  return text + " = " + std::to_string(model_ranks(p));
}

bool is_fsdp(const Parallel& p) {
  return p.data_parallel == DataParallel::kFsdp1 || p.data_parallel == DataParallel::kFsdp2;
}

/// Whose the mode is; of those that no framework calls its own, torch's.
Framework framework_of(DataParallel mode) {
  switch (mode) {
    case DataParallel::kDsZero1:
    case DataParallel::kDsZero2:
    case DataParallel::kDsZero3: return Framework::kDeepSpeed;
    case DataParallel::kMegatronDist: return Framework::kMegatron;
    default: return Framework::kTorch;
  }
}

struct Heads {
  std::int64_t attention = 0;
  std::int64_t key_value = 0;
};

std::optional<Heads> heads_of(const ModelSpec& model) {
  return std::visit(
      [](const auto& spec) -> std::optional<Heads> {
        if constexpr (requires { spec.num_key_value_heads; }) {
          return Heads{spec.num_attention_heads, spec.num_key_value_heads};
        } else if constexpr (requires { spec.num_attention_heads; }) {
          return Heads{spec.num_attention_heads, spec.num_attention_heads};
        } else if constexpr (requires { spec.n_head; }) {
          return Heads{spec.n_head, spec.n_head};
        } else {
          return std::nullopt;
        }
      },
      model.architecture);
}

void check_sizes(const Parallel& p) {
  const std::array<std::pair<const char*, std::int64_t>, 8> sizes = {
      {{"gpus", p.gpus},
       {"nodes", p.nodes},
       {"tp", p.tensor},
       {"cp", p.context},
       {"ep", p.expert},
       {"pp", p.pipeline},
       {"virtual stages", p.virtual_stages},
       {"hsdp shard", std::max<std::int64_t>(p.hsdp_shard, 1)}}};
  for (const auto& [name, size] : sizes) {
    if (size < 1 || size > kMostGpus) {
      refuse(std::string(name) + ": expected a whole number from 1 to " + std::to_string(kMostGpus) + ", found " +
             std::to_string(size));
    }
  }
  if (p.gpus % model_ranks(p) != 0) {
    refuse("gpus " + std::to_string(p.gpus) + ": " + product_of(p) + " does not divide it");
  }
  if (p.gpus % p.nodes != 0) {
    refuse("nodes " + std::to_string(p.nodes) + " does not divide gpus " + std::to_string(p.gpus));
  }
}

void check_options(const Parallel& p) {
  const std::string mode(name_of(p.data_parallel));
  if (!is_fsdp(p)) {
    if (p.hsdp_shard != 0) refuse("hsdp shard: only FSDP shards; accepted: --parallel fsdp2 or fsdp1");
    if (p.fsdp_param_dtype || p.fsdp_reduce_dtype) {
      refuse("FSDP's param and reduce dtype: the mode is " + mode + "; accepted: --parallel fsdp2 or fsdp1");
    }
    if (!p.reshard_after_forward) {
      refuse("no reshard after forward: the mode is " + mode + "; accepted: --parallel fsdp2 or fsdp1");
    }
  } else if (p.hsdp_shard != 0 &&
             (p.hsdp_shard == 1 || sharing_ranks(p) % p.hsdp_shard != 0 || p.hsdp_shard == sharing_ranks(p))) {
    refuse("hsdp shard " + std::to_string(p.hsdp_shard) + ": expected a divisor of the " +
           std::to_string(sharing_ranks(p)) + " data-parallel ranks that is neither 1 nor all of them");
  }
  if ((p.ddp_bucket_view || p.ddp_static_graph) && p.data_parallel != DataParallel::kDdp &&
      p.data_parallel != DataParallel::kZero1) {
    refuse("DDP's bucket views and static graph: the mode is " + mode + "; accepted: --parallel ddp or zero1");
  }
}

void check_heads(const ModelSpec& model, const Parallel& p) {
  if (p.tensor == 1) return;
  const std::optional<Heads> heads = heads_of(model);
  if (!heads) refuse("tp: " + model.model_type + " has no attention heads to share");
  const auto check = [&](std::int64_t count, const char* what) {
    if (count % p.tensor == 0) return;
    refuse("tp " + std::to_string(p.tensor) + " does not divide the " + std::to_string(count) + " " + what + " of " +
           model.name + ": a head cannot be split");
  };
  check(heads->attention, "attention heads");
  check(heads->key_value, "key/value heads");
}

/// torch's: parallelize_module on a model that is otherwise whole on each rank.
void check_tensor_parallel(const RunSpec& run) {
  if (data_parallel_size(run.parallel) > 1) refuse("tp beside data-parallel ranks is not modelled yet");
  if (run.fine_tuning.lora) refuse("tp: adapters on layers that ranks share are not modelled yet");
  if (run.optimizer != Optimizer::kAdamWForLoop && run.optimizer != Optimizer::kAdagradForLoop) {
    refuse("optimizer " + std::string(name_of(run.optimizer)) +
           ": foreach and fused optimizers refuse a mixture of DTensors and tensors, which tp makes of a model's "
           "parameters; accepted: adamw-for, adagrad-for");
  }
}

/// nn.DataParallel.
void check_module_replicas(const RunSpec& run) {
  if (run.parallel.nodes > 1) refuse("dp: nn.DataParallel is one process on one host; accepted: --parallel ddp");
  if (run.use_cache) refuse("use_cache: nn.DataParallel cannot gather a key/value cache");
  if (run.accumulation_steps > 1) refuse("dp: micro-batches that accumulate are not modelled; accepted: --accum 1");
}

void check_deepspeed(const RunSpec& run) {
  const Parallel& p = run.parallel;
  const std::string who = "framework deepspeed: ";
  if (framework_of(p.data_parallel) != Framework::kDeepSpeed) {
    refuse(who + "parallel " + std::string(name_of(p.data_parallel)) +
           " is not its; accepted: ds-zero1, ds-zero2, ds-zero3");
  }
  if (p.tensor > 1) refuse(who + "tp is not modelled");
  if (run.precision != Precision::kBf16 && run.precision != Precision::kFp16 && run.precision != Precision::kFp32) {
    refuse(who + "precision " + std::string(name_of(run.precision)) + " is not modelled; accepted: bf16, fp16, fp32");
  }
  if (run.fine_tuning.lora || !run.fine_tuning.frozen.empty()) {
    refuse(who + "frozen parameters and adapters are not modelled");
  }
  if (run.offload_optimizer) refuse(who + "torchao's offload of the optimizer; accepted: --offload-states host");
  if (p.data_parallel != DataParallel::kDsZero3) {
    if (p.offload_states == OffloadTo::kNvme) refuse("offload states to nvme: only ZeRO-3 does; accepted: host");
    if (p.offload_parameters != OffloadTo::kNowhere) refuse("offload of parameters: only ZeRO-3 does");
  }
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
  if (p.tensor > 1) refuse(cp + " beside tp is not modelled yet");
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

/// torch.distributed.pipelining.
void check_pipeline(const ModelSpec& model, const RunSpec& run) {
  constexpr std::int64_t kMostMicroBatches = 256;
  const Parallel& p = run.parallel;
  const std::string pp = "pp " + std::to_string(p.pipeline);
  const std::int64_t micro_batches = p.micro_batches == 0 ? p.pipeline : p.micro_batches;
  if (p.gpus > p.pipeline)
    refuse(pp + " beside other ways to use the " + std::to_string(p.gpus) +
           " GPUs is not modelled "
           "under torch; accepted: --gpus " +
           std::to_string(p.pipeline) + ", or --framework megatron");
  const std::optional<std::int64_t> layers = decoder_layers(model);
  if (!layers) refuse(pp + ": " + model.model_type + " cannot be cut into stages; accepted: decoders such as llama");
  if (p.pipeline * p.virtual_stages > *layers) {
    refuse(pp + (p.virtual_stages > 1 ? " x " + std::to_string(p.virtual_stages) + " virtual stages" : "") +
           ": more stages than the " + std::to_string(*layers) + " layers of " + model.name);
  }
  if (run.task != Task::kCausalLm) refuse(pp + ": stages are modelled of decoders; accepted: --task causal");
  if (run.fine_tuning.lora) refuse(pp + ": adapters in stages are not modelled yet");
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
  switch (p.schedule) {
    case PipelineSchedule::kZeroBubble:
      refuse(
          "schedule zero-bubble: what torch keeps between the two halves of a backward is not modelled; accepted: "
          "gpipe, 1f1b, interleaved");
    case PipelineSchedule::kInterleaved: {
      if (p.virtual_stages == 1) refuse("schedule interleaved: one stage a rank; give --virtual-stages 2 or more");
      const std::int64_t rounds = std::max<std::int64_t>(1, micro_batches / p.pipeline);
      if (micro_batches % rounds != 0) {
        refuse("micro batches " + std::to_string(micro_batches) + ": ScheduleInterleaved1F1B wants a multiple of its " +
               std::to_string(rounds) + " rounds");
      }
      break;
    }
    default:
      if (p.virtual_stages > 1) refuse("virtual stages: accepted with --schedule interleaved");
      if (p.schedule == PipelineSchedule::kOneForwardOneBackward && micro_batches < p.pipeline) {
        refuse("micro batches " + std::to_string(micro_batches) + ": Schedule1F1B wants as many as stages, " +
               std::to_string(p.pipeline) + ", or more");
      }
  }
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
  if (p.tensor > 1 || p.context > 1 || p.pipeline > 1) {
    refuse("loop trainer: how accelerate prepares a model for " +
           std::string(p.tensor > 1    ? "tp"
                       : p.context > 1 ? "cp"
                                       : "pp") +
           " is not modelled; accepted: --loop bare");
  }
  if (p.data_parallel == DataParallel::kDdp || p.data_parallel == DataParallel::kDp) return;
  const std::string mode(name_of(p.data_parallel));
  if (p.data_parallel != DataParallel::kFsdp2) {
    refuse("loop trainer: how accelerate prepares a model for " + mode +
           " is not modelled; accepted: --loop bare, or --parallel ddp, dp or fsdp2");
  }
  if (run.task != Task::kCausalLm || !ties_embeddings(model)) {
    refuse(
        "loop trainer: accelerate makes units of the embedding and of the final norm with the head, which is modelled "
        "where the two share their weight (causal models with tied embeddings); accepted: --loop bare");
  }
  if (run.precision == Precision::kAmpFp16) {
    refuse("loop trainer: fsdp2 with a loss scaler is not modelled; accepted: --precision amp-bf16, bf16, fp32");
  }
}

/// What the modelled modes are; the rest is refused.
void check_modelled(const ModelSpec& model, const RunSpec& run) {
  const Parallel& p = run.parallel;
  const auto not_modelled = [](const std::string& what) { refuse(what + " is not modelled yet"); };
  if (p.framework == Framework::kDeepSpeed) check_deepspeed(run);
  if (p.framework == Framework::kDeepSpeed && p.pipeline > 1) not_modelled("pp");
  if (p.framework == Framework::kDeepSpeed && p.context > 1) not_modelled("cp");
  if (p.pipeline > 1) check_pipeline(model, run);
  if (p.expert > 1) not_modelled("ep");
  if (p.sequence_parallel) refuse("sp: sequence parallel is Megatron's; accepted: --framework megatron");
  if (p.data_parallel == DataParallel::kDp) check_module_replicas(run);
  if (run.loop == Loop::kTrainer) check_trainer(model, run);
  if (run.fine_tuning.quantization != Quantization::kNone) not_modelled("a quantised base on several GPUs");
  if (p.context > 1) check_context_parallel(run);
  if (p.tensor > 1) check_tensor_parallel(run);
  if (p.framework != Framework::kDeepSpeed) check_offload(p);
}

}  // namespace

std::int64_t data_parallel_size(const Parallel& p) { return p.gpus / model_ranks(p); }

std::int64_t sharing_ranks(const Parallel& p) {
  return data_parallel_size(p) * (p.framework == Framework::kTorch ? p.context : 1);
}

Parallel resolve_parallel(Parallel p, std::optional<std::int64_t> gpus, std::optional<Framework> framework,
                          std::vector<std::string>& assumptions) {
  const std::int64_t ranks = model_ranks(p);
  const Framework usual = framework_of(p.data_parallel);
  p.framework = framework.value_or(usual);
  if (usual != Framework::kTorch && p.framework != usual) {
    refuse("framework " + std::string(name_of(p.framework)) + ": " + std::string(name_of(p.data_parallel)) + " is " +
           std::string(name_of(usual)) + "'s");
  }
  p.gpus = gpus.value_or(ranks);
  if (!gpus && ranks > 1) assumptions.push_back("gpus " + std::to_string(ranks) + ": " + product_of(p) + " (--gpus)");
  if (p.framework == Framework::kDeepSpeed && p.data_parallel == DataParallel::kNone) {
    p.data_parallel = DataParallel::kDsZero2;
    assumptions.emplace_back("DeepSpeed's ZeRO stage 2 (--parallel)");
  }
  if (p.gpus == 1 && p.framework != Framework::kDeepSpeed) {
    if (p.data_parallel != DataParallel::kNone && p.framework != Framework::kMegatron) {
      refuse("parallel " + std::string(name_of(p.data_parallel)) + ": one GPU has nothing to share; give --gpus");
    }
    return p;
  }
  if (p.gpus % ranks == 0 && p.gpus > ranks && p.data_parallel == DataParallel::kNone &&
      p.framework == Framework::kTorch) {
    p.data_parallel = DataParallel::kDdp;
    assumptions.push_back(std::to_string(p.gpus / ranks) +
                          " data-parallel ranks hold a whole copy each: DistributedDataParallel (--parallel)");
  }
  if (ranks > 1 && p.gpus % ranks == 0 && sharing_ranks(p) == 1 && p.data_parallel != DataParallel::kNone &&
      p.framework != Framework::kMegatron) {
    refuse("parallel " + std::string(name_of(p.data_parallel)) + ": " + product_of(p) +
           " takes all GPUs, and no two ranks see different data");
  }
  if (p.data_parallel == DataParallel::kFsdp2 && p.offload_parameters == OffloadTo::kHost &&
      p.offload_states == OffloadTo::kNowhere) {
    p.offload_states = OffloadTo::kHost;
    assumptions.emplace_back("FSDP2's CPUOffloadPolicy keeps gradients and optimizer states on the host, too");
  }
  return p;
}

void check_parallel(const ModelSpec& model, const RunSpec& run) {
  const Parallel& p = run.parallel;
  check_sizes(p);
  if (p.framework == Framework::kMegatron) return check_megatron(model, run);
  if (p.framework != Framework::kDeepSpeed && p.deepspeed != DeepSpeedOptions()) {
    refuse("--deepspeed: the framework is " + std::string(name_of(p.framework)) +
           "; accepted: --parallel ds-zero1, ds-zero2 or ds-zero3");
  }
  if (!p.is_parallel()) return;
  check_options(p);
  check_heads(model, p);
  check_modelled(model, run);
}

}  // namespace memcalc
