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
#include "memcalc/spec/validate_torch.h"

namespace memcalc {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kUsage, message); }

constexpr std::int64_t kMostGpus = std::int64_t{1} << 20;

/// Megatron's expert parallelism is among the ranks that see different data; under torch all of them see the same.
std::int64_t model_ranks(const Parallel& p) {
  const std::int64_t experts = p.framework == Framework::kTorch ? p.expert : 1;
  return checked_multiply(checked_multiply(checked_multiply(p.tensor, p.context), p.pipeline), experts);
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
  if (p.framework == Framework::kTorch) add("ep", p.expert);
  return text + " = " + std::to_string(model_ranks(p));
}

bool is_fsdp(const Parallel& p) {
  return p.data_parallel == DataParallel::kFsdp1 || p.data_parallel == DataParallel::kFsdp2;
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

void check_ddp_options(const Parallel& p) {
  const std::string mode(name_of(p.data_parallel));
  if ((p.ddp_bucket_view || p.ddp_static_graph) && p.data_parallel != DataParallel::kDdp &&
      p.data_parallel != DataParallel::kZero1) {
    refuse("DDP's bucket views and static graph: the mode is " + mode + "; accepted: --parallel ddp or zero1");
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
  }
  if (p.keep_last_layer && (p.data_parallel != DataParallel::kFsdp2 || !p.reshard_after_forward)) {
    refuse(
        "keep last layer: nothing else is resharded, either; accepted: --parallel fsdp2 that reshards after forward");
  }
  if (!is_fsdp(p)) return check_ddp_options(p);
  if (p.hsdp_shard != 0 && p.data_parallel == DataParallel::kFsdp1) {
    refuse("hsdp shard: FSDP1's HYBRID_SHARD is not modelled; accepted: --parallel fsdp2");
  } else if (p.hsdp_shard != 0 &&
             (p.hsdp_shard == 1 || sharing_ranks(p) % p.hsdp_shard != 0 || p.hsdp_shard == sharing_ranks(p))) {
    refuse("hsdp shard " + std::to_string(p.hsdp_shard) + ": expected a divisor of the " +
           std::to_string(sharing_ranks(p)) + " data-parallel ranks that is neither 1 nor all of them");
  }
  check_ddp_options(p);
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

/// DeepSpeed's UlyssesSPAttentionHF (deepspeed/runtime/sequence_parallel/ulysses_sp.py).
void check_ulysses(const ModelSpec& model, const RunSpec& run) {
  const Parallel& p = run.parallel;
  const std::string cp = "cp " + std::to_string(p.context);
  if (p.context_type != ContextParallel::kUlysses) {
    refuse(cp + " by " + std::string(name_of(p.context_type)) +
           ": DeepSpeed's sequence parallelism is Ulysses; accepted: --cp-type ulysses");
  }
  // Of these the layers hand position_ids to the attention function, which Ulysses insists on.
  constexpr std::array<std::string_view, 4> kModels = {"llama", "mistral", "qwen2", "qwen3"};
  if (std::find(kModels.begin(), kModels.end(), model.model_type) == kModels.end() || run.task != Task::kCausalLm) {
    refuse(cp + ": Ulysses is modelled of causal llama, mistral, qwen2 and qwen3; found: " + model.model_type);
  }
  const std::optional<Heads> heads = heads_of(model);
  if (heads->attention % p.context != 0) {
    refuse(cp + " does not divide the " + std::to_string(heads->attention) + " attention heads of " + model.name);
  }
  if (heads->key_value % p.context != 0 && p.context % heads->key_value != 0) {
    refuse(cp + " neither divides the " + std::to_string(heads->key_value) + " key/value heads of " + model.name +
           " nor is it a multiple of them");
  }
  if (run.sequence_length % p.context != 0) {
    refuse(cp + " does not divide the sequence length " + std::to_string(run.sequence_length));
  }
  if (run.attention != Attention::kSdpa) refuse(cp + ": Ulysses is modelled around sdpa; accepted: --attn sdpa");
  if (run.padding) refuse(cp + ": Ulysses drops attention masks; accepted: no --padding");
  if (run.fine_tuning.liger) refuse(cp + ": Liger's kernels beside Ulysses are not modelled");
  if (run.checkpointing == Checkpointing::kSelective) {
    refuse(cp + ": selective checkpointing around Ulysses is not modelled; accepted: full, none");
  }
}

void check_deepspeed(const ModelSpec& model, const RunSpec& run) {
  const Parallel& p = run.parallel;
  const std::string who = "framework deepspeed: ";
  if (framework_of(p.data_parallel) != Framework::kDeepSpeed) {
    refuse(who + "parallel " + std::string(name_of(p.data_parallel)) +
           " is not its; accepted: ds-zero1, ds-zero2, ds-zero3");
  }
  if (p.tensor > 1 || p.pipeline > 1 || p.expert > 1) {
    refuse(who + (p.tensor > 1 ? "tp" : p.pipeline > 1 ? "pp" : "ep") + " is not modelled");
  }
  if (p.context > 1) check_ulysses(model, run);
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

/// What the modelled modes are; the rest is refused.
void check_modelled(const ModelSpec& model, const RunSpec& run) {
  const Parallel& p = run.parallel;
  if (p.framework == Framework::kDeepSpeed) check_deepspeed(model, run);
  if (p.sequence_parallel && p.framework != Framework::kTorch) refuse("sp: accepted: --framework torch, megatron");
  if (run.fine_tuning.quantization != Quantization::kNone) {
    refuse("a quantised base on several GPUs is not modelled yet");
  }
  check_torch_parallel(model, run);
}

}  // namespace

Framework framework_of(DataParallel mode) {
  switch (mode) {
    case DataParallel::kDsZero1:
    case DataParallel::kDsZero2:
    case DataParallel::kDsZero3: return Framework::kDeepSpeed;
    case DataParallel::kMegatronDist: return Framework::kMegatron;
    default: return Framework::kTorch;
  }
}

std::int64_t data_parallel_size(const Parallel& p) { return p.gpus / model_ranks(p); }

std::int64_t sharing_ranks(const Parallel& p) {
  return data_parallel_size(p) * (p.framework == Framework::kMegatron ? 1 : p.context);
}

Parallel resolve_parallel(Parallel p, std::optional<std::int64_t> gpus, std::optional<Framework> framework,
                          std::vector<std::string>& assumptions) {
  const Framework usual = framework_of(p.data_parallel);
  p.framework = framework.value_or(usual);
  if (p.schedule == PipelineSchedule::kZeroBubbleV && p.virtual_stages == 1) p.virtual_stages = 2;
  if (usual != Framework::kTorch && p.framework != usual) {
    refuse("framework " + std::string(name_of(p.framework)) + ": " + std::string(name_of(p.data_parallel)) + " is " +
           std::string(name_of(usual)) + "'s");
  }
  const std::int64_t ranks = model_ranks(p);
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
  if (!p.stage_layers.empty() && (p.pipeline == 1 || p.framework != Framework::kTorch)) {
    refuse(
        "stage layers: of a pipeline under torch; accepted with --pp (Megatron: --megatron "
        "decoder-first-pipeline-num-layers=N, decoder-last-pipeline-num-layers=N)");
  }
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
