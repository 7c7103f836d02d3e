// What torch's own parallel modules, and accelerate's, refuse or leave to the user, and what of them is modelled.
// Covered by tests/unit/rules_torch_test.cc.
#include <fmt/core.h>

#include <algorithm>

#include "memcalc/spec/parallel.h"
#include "memcalc/spec/rule_tables.h"
#include "memcalc/spec/rule_words.h"

namespace memcalc {
namespace {

/// By torch's modules or DeepSpeed's, whose models are transformers' both.
bool is_shared_out(const RuleQuestion& q) { return is_parallel(q) && !is_megatron(q); }
bool is_torch_parallel(const RuleQuestion& q) { return is_parallel(q) && is_torch(q); }

bool is_mode(const RuleQuestion& q, DataParallel mode) { return q.parallel.data_parallel == mode; }
bool is_none(const RuleQuestion& q) { return is_mode(q, DataParallel::kNone); }
bool is_ddp(const RuleQuestion& q) { return is_mode(q, DataParallel::kDdp); }
bool is_fsdp1(const RuleQuestion& q) { return is_mode(q, DataParallel::kFsdp1); }
bool is_fsdp2(const RuleQuestion& q) { return is_mode(q, DataParallel::kFsdp2); }

/// Tensor and expert parallelism and pipelines stand beside these alone.
bool is_none_ddp_or_fsdp2(const RuleQuestion& q) { return is_none(q) || is_ddp(q) || is_fsdp2(q); }

/// FSDP's groups of ranks; 0: none were asked for.
std::int64_t hsdp_shard(const RuleQuestion& q) {
  const TorchMesh* mesh = mesh_of(q);
  return mesh != nullptr ? mesh->hsdp_shard : 0;
}
bool reshards(const RuleQuestion& q) {
  const TorchMesh* mesh = mesh_of(q);
  return mesh == nullptr || mesh->reshard_after_forward;
}
bool keeps_last_layer(const RuleQuestion& q) {
  const TorchMesh* mesh = mesh_of(q);
  return mesh != nullptr && mesh->keep_last_layer;
}
bool has_static_graph(const RuleQuestion& q) {
  const TorchMesh* mesh = mesh_of(q);
  return mesh != nullptr && mesh->ddp_static_graph;
}
bool splits_loss(const RuleQuestion& q) {
  const TorchMesh* mesh = mesh_of(q);
  return mesh != nullptr && mesh->loss_parallel;
}

std::string ranks_that_share(const RuleQuestion& q) { return std::to_string(sharing_ranks(q.parallel)); }

// --- options of one data-parallel mode

constexpr Rule kModes[] = {
    {.id = "hsdp-of-fsdp",
     .options = "--hsdp-shard --parallel",
     .message = "--hsdp-shard groups the ranks of FSDP2, and this run is {--parallel}",
     .accepted = "--parallel fsdp2",
     .broken = [](const RuleQuestion& q) { return hsdp_shard(q) != 0 && !is_fsdp(q); }},
    {.id = "hsdp-of-fsdp1",
     .options = "--hsdp-shard --parallel",
     .message = "FSDP1's HYBRID_SHARD is not modelled",
     .accepted = "--parallel fsdp2",
     .broken = [](const RuleQuestion& q) { return hsdp_shard(q) != 0 && is_fsdp1(q); }},
    {.id = "hsdp-divides-ranks",
     .options = "--hsdp-shard --gpus",
     .message =
         "--hsdp-shard {--hsdp-shard} does not cut the {} data-parallel ranks into several equal groups of two or more",
     .accepted = "--hsdp-shard with a divisor of {} that is neither 1 nor {}",
     .broken =
         [](const RuleQuestion& q) {
           const std::int64_t shard = hsdp_shard(q), ranks = sharing_ranks(q.parallel);
           return shard != 0 && is_fsdp2(q) && (shard == 1 || shard == ranks || ranks % shard != 0);
         },
     .detail = ranks_that_share},
    {.id = "fsdp-dtypes-of-fsdp",
     .options = "--fsdp-param-dtype --fsdp-reduce-dtype --parallel",
     .message = "--fsdp-param-dtype and --fsdp-reduce-dtype are FSDP's mixed precision, and this run is {--parallel}",
     .accepted = "--parallel fsdp2 or fsdp1",
     .broken =
         [](const RuleQuestion& q) {
           const TorchMesh* mesh = mesh_of(q);
           return mesh != nullptr && (mesh->fsdp_param_dtype || mesh->fsdp_reduce_dtype) && !is_fsdp(q);
         }},
    {.id = "reshard-of-fsdp",
     .options = "--no-reshard-after-forward --parallel",
     .message = "--no-reshard-after-forward is FSDP2's, and this run is {--parallel}",
     .accepted = "--parallel fsdp2",
     .broken = [](const RuleQuestion& q) { return !reshards(q) && !is_fsdp(q); }},
    {.id = "keep-last-layer-of-fsdp2",
     .options = "--keep-last-layer --parallel --no-reshard-after-forward",
     .message =
         "--keep-last-layer is an exception where FSDP2 reshards the layers after forward, and this run reshards none",
     .accepted = "--parallel fsdp2 without --no-reshard-after-forward",
     .broken = [](const RuleQuestion& q) { return keeps_last_layer(q) && (!is_fsdp2(q) || !reshards(q)); }},
    {.id = "ddp-options-of-ddp",
     .options = "--ddp-bucket-view --ddp-static-graph --parallel",
     .message = "--ddp-bucket-view and --ddp-static-graph are DistributedDataParallel's, and this run is {--parallel}",
     .accepted = "--parallel ddp or zero1",
     .broken =
         [](const RuleQuestion& q) {
           const TorchMesh* mesh = mesh_of(q);
           return mesh != nullptr && (mesh->ddp_bucket_view || mesh->ddp_static_graph) && !is_ddp(q) &&
                  !is_mode(q, DataParallel::kZero1);
         }},
    {.id = "quantized-base-on-one-gpu",
     .options = "--quantize --parallel --loop",
     .message =
         "a quantised base on several GPUs is modelled in the Trainer under DDP, and nf4 where it is sharded, not "
         "{--quantize} under {--parallel} with --loop {--loop}",
     .accepted = "--loop trainer with --parallel ddp, or --quantize nf4 with fsdp2, ds-zero1 to ds-zero3, or fsdp1 and "
                 "--quant-storage bf16; --gpus 1",
     .broken =
         [](const RuleQuestion& q) {
           if (!quantizes(q)) return false;
           const Quantization kind = q.run.fine_tuning.quantization;
           const bool is_nf4 = kind == Quantization::kNf4 || kind == Quantization::kNf4Double;
           // FSDP1 flattens what has one type alone, of which bytes are another.
           const bool flattens = is_fsdp1(q) && q.run.fine_tuning.quant_storage;
           const bool shares = is_fsdp2(q) || is_deepspeed(q) || flattens;
           return !q.run.uses_trainer() || !(is_ddp(q) || (is_nf4 && shares));
         }},
    {.id = "quantized-base-offload",
     .options = "--quantize --offload-parameters --offload-states",
     .message = "a quantised base beside offload of shards is modelled under FSDP2, which offloads the 4-bit weights "
                "that it shards: those of a floating type, not bytes",
     .accepted = "--parallel fsdp2 --offload-parameters host --quant-storage bf16, or no --offload-parameters and no "
                 "--offload-states",
     .broken =
         [](const RuleQuestion& q) {
           if (!quantizes(q)) return false;
           if (is_fsdp2(q) && q.run.fine_tuning.quant_storage) return false;
           return q.parallel.offload_parameters != OffloadTo::kNowhere ||
                  q.parallel.offload_states != OffloadTo::kNowhere;
         }},
    {.id = "quant-storage-is-gathered",
     .options = "--quant-storage --precision",
     .message = "4-bit weights stored as {--quant-storage} and gathered as such are modelled where FSDP2 gathers in "
                "bfloat16, by the Trainer's bf16=True",
     .accepted = "--quant-storage bf16 --precision amp-bf16",
     .broken =
         [](const RuleQuestion& q) {
           const auto& storage = q.run.fine_tuning.quant_storage;
           return storage && (*storage != DType::kBFloat16 || q.run.precision != Precision::kAmpBf16);
         }},
};

constexpr Rule kReplicas[] = {
    {.id = "dp-on-one-node",
     .options = "--parallel --nodes",
     .message = "nn.DataParallel is one process, which reaches the GPUs of one node",
     .accepted = "--nodes 1, or --parallel ddp",
     .broken = [](const RuleQuestion& q) { return q.parallel.nodes > 1; }},
    {.id = "dp-cache",
     .options = "--use-cache --parallel",
     .message = "nn.DataParallel cannot gather a key/value cache from its replicas",
     .accepted = "no --use-cache, or --parallel ddp",
     .broken = [](const RuleQuestion& q) { return q.run.use_cache; }},
    {.id = "dp-accumulation",
     .options = "--accum --parallel",
     .message = "gradient accumulation under nn.DataParallel is not modelled",
     .accepted = "--accum 1, or --parallel ddp",
     .broken = [](const RuleQuestion& q) { return training_of(q).accumulation_steps > 1; }},
};

/// fully_shard's CPUOffloadPolicy.
constexpr Rule kOffload[] = {
    {.id = "offload-of-fsdp2",
     .options = "--offload-states --offload-parameters --parallel",
     .message = "offload beside {--parallel} is not modelled",
     .accepted = "--parallel fsdp2 with --offload-parameters host, or --parallel ds-zero2 or ds-zero3",
     .broken = [](const RuleQuestion& q) { return !is_fsdp2(q); }},
    {.id = "fsdp2-offloads-to-host",
     .options = "--offload-parameters --offload-states",
     .message = "FSDP2 offloads to host memory, not to NVMe",
     .accepted = "--offload-parameters host, or --parallel ds-zero3",
     .broken =
         [](const RuleQuestion& q) {
           return q.parallel.offload_states == OffloadTo::kNvme || q.parallel.offload_parameters == OffloadTo::kNvme;
         }},
    {.id = "fsdp2-offloads-all",
     .options = "--offload-states --offload-parameters",
     .message = "FSDP2 offloads parameters, gradients and optimizer states together, not the states alone",
     .accepted = "--offload-parameters host",
     .broken = [](const RuleQuestion& q) { return q.parallel.offload_parameters == OffloadTo::kNowhere; }},
};

// --- the Trainer: what accelerate 1.15 makes of a model on several GPUs

/// "--tp 2"
std::string split_of_model(const RuleQuestion& q) {
  const Parallel& p = q.parallel;
  if (p.tensor > 1) return fmt::format("--tp {}", p.tensor);
  if (p.context > 1) return fmt::format("--cp {}", p.context);
  if (p.pipeline > 1) return fmt::format("--pp {}", p.pipeline);
  return fmt::format("--ep {}", p.expert);
}

constexpr Rule kTrainer[] = {
    {.id = "trainer-splits-no-model",
     .options = "--loop --tp --cp --pp --ep",
     .message = "{} in the Trainer is not modelled",
     .accepted = "--loop bare",
     .broken =
         [](const RuleQuestion& q) {
           return q.parallel.tensor > 1 || q.parallel.context > 1 || q.parallel.pipeline > 1 || q.parallel.expert > 1;
         },
     .detail = split_of_model},
    {.id = "trainer-modes",
     .options = "--loop --parallel",
     .message = "{--parallel} in the Trainer is not modelled",
     .accepted = "--loop bare, or --parallel ddp, dp, fsdp1, fsdp2, ds-zero1, ds-zero2 or ds-zero3",
     .broken =
         [](const RuleQuestion& q) {
           return !is_ddp(q) && !is_mode(q, DataParallel::kDp) && !is_fsdp(q) && !is_deepspeed(q);
         }},
    {.id = "trainer-fsdp2-adafactor",
     .options = "--optimizer --parallel --loop",
     .message =
         "{--optimizer}: transformers' Adafactor adds FSDP2's sharded tensors to plain ones, which torch refuses",
     .accepted = "--optimizer adamw-fused, or another --parallel",
     .broken =
         [](const RuleQuestion& q) {
           const Optimizer optimizer = training_of(q).optimizer;
           return is_fsdp2(q) && (optimizer == Optimizer::kAdafactor || optimizer == Optimizer::kAdafactorRelative);
         }},
    {.id = "trainer-keeps-no-last-layer",
     .options = "--keep-last-layer --loop",
     .message = "--keep-last-layer is torchtitan's, and accelerate reshards every layer alike",
     .accepted = "--loop bare, or no --keep-last-layer",
     .broken = keeps_last_layer},
    {.id = "trainer-fsdp-loss-scaler",
     .options = "--precision --parallel --loop",
     .message = "{--parallel} in the Trainer with float16's loss scaler is not modelled",
     .accepted = "--precision amp-bf16, bf16 or fp32",
     .broken = [](const RuleQuestion& q) { return is_fsdp(q) && q.run.precision == Precision::kAmpFp16; }},
    {.id = "trainer-fsdp1-decoders",
     .options = "--parallel --task --loop",
     .message =
         "FSDP1 in the Trainer is modelled for causal models and classifiers of sequences, not for task {--task}",
     .accepted = "--task causal, seqcls, or --loop bare",
     .broken =
         [](const RuleQuestion& q) {
           return is_fsdp1(q) && !is_causal(q) && q.run.task != Task::kSequenceClassification;
         }},
    {.id = "trainer-fsdp2-decoders",
     .options = "--parallel --task --loop",
     .message =
         "FSDP2 in the Trainer is modelled for causal models and classifiers of sequences, not for task {--task}",
     .accepted = "--task causal, seqcls, or --loop bare",
     .broken =
         [](const RuleQuestion& q) {
           return is_fsdp2(q) && !is_causal(q) && q.run.task != Task::kSequenceClassification;
         }},
};

// --- context parallelism: torch.distributed.tensor.experimental.context_parallel

constexpr Rule kContextParallel[] = {
    {.id = "torch-cp-is-no-ulysses",
     .options = "--cp-type --cp --framework",
     .message = "torch's context parallelism has no Ulysses",
     .accepted = "--cp-type all-gather or ring, or --framework deepspeed or megatron",
     .broken = [](const RuleQuestion& q) { return q.parallel.context_type == ContextParallel::kUlysses; }},
    {.id = "cp-is-causal",
     .options = "--cp --task",
     .message = "torch balances context parallelism for a causal mask, and task {--task} has none",
     .accepted = "--task causal",
     .broken = [](const RuleQuestion& q) { return !is_causal(q); }},
    {.id = "cp-splits-sequence",
     .options = "--seq --cp",
     .message = "--seq {--seq} is no multiple of {}: torch cuts a sequence into two pieces for each of {--cp} ranks",
     .accepted = "--seq with a multiple of {}",
     .broken = [](const RuleQuestion& q) { return q.run.sequence_length % (2 * q.parallel.context) != 0; },
     .detail = [](const RuleQuestion& q) { return std::to_string(2 * q.parallel.context); }},
    {.id = "cp-attention",
     .options = "--attn --cp",
     .message =
         "torch's context parallelism replaces scaled_dot_product_attention, and this run has attention {--attn}",
     .accepted = "--attn sdpa",
     .broken = [](const RuleQuestion& q) { return q.run.attention != Attention::kSdpa; }},
    {.id = "cp-padding",
     .options = "--padding --cp",
     .message = "torch's context parallelism takes no attention mask, so sequences cannot be padded",
     .accepted = "no --padding",
     .broken = [](const RuleQuestion& q) { return q.run.padding; }},
    {.id = "cp-selective-checkpointing",
     .options = "--checkpointing --cp",
     .message = "selective checkpointing with context parallelism is not modelled",
     .accepted = "--checkpointing full or none",
     .broken = [](const RuleQuestion& q) { return q.run.checkpointing() == Checkpointing::kSelective; }},
};

// --- expert parallelism: transformers' base_model_ep_plan, in the place of its plan for tensor parallelism; beside
// fully_shard its DistributedConfig takes neither

constexpr Rule kExpertParallel[] = {
    {.id = "ep-takes-all-gpus",
     .options = "--gpus --ep",
     .message = "transformers uses expert parallelism alone: {--ep} ranks leave some of the {--gpus} GPUs without work",
     .accepted = "--gpus {--ep}, or --framework megatron",
     .broken = [](const RuleQuestion& q) { return q.parallel.gpus > q.parallel.expert; }},
    {.id = "ep-adapters",
     .options = "--lora --ep",
     .message = "LoRA beside expert parallelism is not modelled",
     .accepted = "no --lora, or no --ep",
     .broken = has_adapters},
};

// --- sequence parallelism: the plan of torch's tutorial and of torchtitan, which splits the sequence between the
// layers' products, the embedding and the head: every parameter is a DTensor of one mesh

constexpr Rule kSplitSequence[] = {
    {.id = "sp-needs-tp",
     .options = "--sp --tp",
     .message = "--sp splits the sequence among tensor-parallel ranks, and there are none",
     .accepted = "--sp with --tp 2 or more",
     .broken = [](const RuleQuestion& q) { return q.parallel.sequence_parallel && q.parallel.tensor == 1; }},
    {.id = "loss-parallel-needs-sp",
     .options = "--loss-parallel --sp --tp",
     .message = "--loss-parallel is modelled together with --sp alone",
     .accepted = "--tp N --sp --loss-parallel",
     .broken = [](const RuleQuestion& q) { return splits_loss(q) && !q.parallel.sequence_parallel; }},
};

constexpr Rule kSequenceParallel[] = {
    {.id = "sp-ddp",
     .options = "--parallel --sp",
     .message = "--sp beside DistributedDataParallel is not modelled",
     .accepted = "--parallel fsdp2",
     .broken = is_ddp},
    {.id = "sp-splits-nothing-else",
     .options = "--sp --pp --cp --ep",
     .message = "--sp beside pipelines, context or expert parallelism is not modelled under torch",
     .accepted = "--framework megatron",
     .broken =
         [](const RuleQuestion& q) {
           return q.parallel.pipeline > 1 || q.parallel.context > 1 || q.parallel.expert > 1;
         }},
    {.id = "sp-families",
     .options = "--sp --model",
     .message = "--sp is not modelled for {model}, of the family {family}",
     .accepted = "a model of the family llama, mistral or qwen2, or no --sp",
     .broken = [](const RuleQuestion& q) { return !has(q, &Family::sequence_parallel); }},
    {.id = "sp-task",
     .options = "--task --sp",
     .message = "--sp is modelled for causal models, not for task {--task}",
     .accepted = "--task causal",
     .broken = [](const RuleQuestion& q) { return !is_causal(q); }},
    {.id = "sp-adapters",
     .options = "--lora --sp",
     .message = "LoRA beside --sp is not modelled",
     .accepted = "no --lora, or no --sp",
     .broken = has_adapters},
    {.id = "sp-splits-sequence",
     .options = "--seq --tp --sp",
     .message = "--seq {--seq} cannot be split evenly over {--tp} tensor-parallel ranks",
     .accepted = "--seq with a multiple of {--tp}",
     .broken =
         [](const RuleQuestion& q) { return q.parallel.tensor > 1 && q.run.sequence_length % q.parallel.tensor != 0; }},
    {.id = "sp-padding",
     .options = "--padding --sp",
     .message = "--padding beside --sp is not modelled",
     .accepted = "no --padding, or no --sp",
     .broken = [](const RuleQuestion& q) { return q.run.padding; }},
    {.id = "sp-attention",
     .options = "--attn --sp",
     .message = "eager attention beside --sp is not modelled",
     .accepted = "--attn sdpa or flash",
     .broken = [](const RuleQuestion& q) { return q.run.attention == Attention::kEager; }},
    {.id = "sp-compile",
     .options = "--compile --sp",
     .message = "compiled layers beside --sp are not modelled",
     .accepted = "no --compile, or no --sp",
     .broken = [](const RuleQuestion& q) { return q.run.compiles(); }},
    {.id = "sp-liger",
     .options = "--liger --sp",
     .message = "Liger's kernels beside --sp are not modelled",
     .accepted = "no --liger, or no --sp",
     .broken = has_liger},
    {.id = "sp-checkpointing",
     .options = "--checkpointing --sp",
     .message = "selective checkpointing beside --sp is not modelled",
     .accepted = "--checkpointing none or full",
     .broken = [](const RuleQuestion& q) { return q.run.checkpointing() == Checkpointing::kSelective; }},
    {.id = "sp-activation-offload",
     .options = "--activation-offload --sp",
     .message = "offload of activations beside --sp is not modelled",
     .accepted = "no --activation-offload, or no --sp",
     .broken = [](const RuleQuestion& q) { return training_of(q).offload_activations; }},
    {.id = "sp-loss-scaler",
     .options = "--precision --sp",
     .message = "float16's loss scaler beside --sp is not modelled",
     .accepted = "--precision bf16, amp-bf16 or fp32",
     .broken = [](const RuleQuestion& q) { return q.run.precision == Precision::kAmpFp16; }},
    {.id = "sp-clipping",
     .options = "--clip-grad --sp",
     .message = "gradient clipping beside --sp is not modelled",
     .accepted = "--clip-grad 0",
     .broken = [](const RuleQuestion& q) { return training_of(q).max_grad_norm.has_value(); }},
    {.id = "sp-optimizer",
     .options = "--optimizer --sp",
     .message = "optimizer {--optimizer} beside --sp is modelled with FSDP2 alone",
     .accepted = "--optimizer adamw or adam, or --parallel fsdp2",
     .broken =
         [](const RuleQuestion& q) {
           return is_none(q) && training_of(q).optimizer != Optimizer::kAdamWForeach &&
                  training_of(q).optimizer != Optimizer::kAdam;
         }},
};

// --- tensor and expert parallelism: parallelize_module of the layers. What is not split stays a plain tensor, or
// becomes a DTensor on the data-parallel dimension of the mesh alone (fsdp2); under ddp all are plain, the local
// tensors of DTensors. The same holds for experts, which are DTensors, and the rest.

constexpr Rule kTensorParallelModes[] = {
    {.id = "tp-modes",
     .options = "--parallel --tp --ep",
     .message = "{--parallel} beside tensor or expert parallelism is not modelled",
     .accepted = "--parallel fsdp2 or ddp",
     .broken = [](const RuleQuestion& q) { return !is_none_ddp_or_fsdp2(q); }},
};

/// "those of DTensors and of plain tensors"
std::string kinds_of_gradients(const RuleQuestion& q) {
  return is_none(q) ? "those of DTensors and of plain tensors" : "those of DTensors of two meshes";
}

constexpr Rule kTensorParallel[] = {
    {.id = "tp-optimizer",
     .options = "--optimizer --tp --ep",
     .message = "optimizer {--optimizer} handles all parameters at once, which torch refuses where some are split over "
                "ranks (DTensors) and others are plain tensors",
     .accepted = "--optimizer adamw-for or adagrad-for, or --parallel fsdp2",
     .broken =
         [](const RuleQuestion& q) {
           return is_none(q) && training_of(q).optimizer != Optimizer::kAdamWForLoop &&
                  training_of(q).optimizer != Optimizer::kAdagradForLoop;
         }},
    {.id = "tp-clipping",
     .options = "--clip-grad --tp --ep",
     .message = "gradient clipping stacks the norms of all gradients, and torch refuses to stack {}",
     .accepted = "--clip-grad 0",
     .broken = [](const RuleQuestion& q) { return !is_ddp(q) && training_of(q).max_grad_norm.has_value(); },
     .detail = kinds_of_gradients},
    {.id = "tp-loss-scaler",
     .options = "--precision --tp --ep",
     .message = "the loss scaler unscales all gradients at once, which torch refuses where some are split over ranks "
                "(DTensors) and others are plain tensors",
     .accepted = "--precision amp-bf16, bf16 or fp32",
     .broken = [](const RuleQuestion& q) { return is_none(q) && q.run.precision == Precision::kAmpFp16; }},
    {.id = "tp-adafactor",
     .options = "--optimizer --tp --parallel",
     .message =
         "torch's Adafactor changes parameters in place, which torch refuses where both --tp and FSDP2 split them",
     .accepted = "--optimizer adamw",
     .broken =
         [](const RuleQuestion& q) { return is_fsdp2(q) && training_of(q).optimizer == Optimizer::kAdafactorTorch; }},
};

// --- pipelines: torch.distributed.pipelining

constexpr std::int64_t kMostMicroBatches = 256;  // a step's trace holds each

/// Decoders on rotary_decoder.h (models/pipeline_stages.h).
bool has_stages(const RuleQuestion& q) { return has(q, &Family::has_stages); }

std::int64_t stages_of(const RuleQuestion& q) { return q.parallel.pipeline * q.parallel.virtual_stages; }

std::string stages(const RuleQuestion& q) { return std::to_string(stages_of(q)); }
std::string micro_batches(const RuleQuestion& q) { return std::to_string(micro_batches_of(q.parallel)); }

std::string numbers_of_layers(const RuleQuestion& q) {
  return fmt::format("{} numbers for {} stages", q.parallel.stage_layers.size(), stages_of(q));
}

/// Each counts for one more than the model has at most, so that no sum is too large.
std::int64_t sum_of_layers(const RuleQuestion& q) {
  const std::int64_t most = q.sizes.layers.value_or(0) + 1;
  std::int64_t sum = 0;
  for (const std::int64_t each : q.parallel.stage_layers) sum += std::min(each, most);
  return sum;
}

constexpr Rule kPipelines[] = {
    {.id = "pp-modes",
     .options = "--parallel --pp",
     .message = "{--parallel} beside a pipeline is not modelled",
     .accepted = "--parallel fsdp2 or ddp",
     .broken = [](const RuleQuestion& q) { return !is_none_ddp_or_fsdp2(q); }},
    {.id = "pp-static-graph",
     .options = "--ddp-static-graph --pp",
     .message = "a pipeline prepares DDP's reducer by itself, which a static graph does not take",
     .accepted = "no --ddp-static-graph",
     .broken = [](const RuleQuestion& q) { return is_ddp(q) && has_static_graph(q); }},
    {.id = "pp-offload",
     .options = "--offload-parameters --pp",
     .message = "offload of a pipeline's parameters is not modelled",
     .accepted = "no --offload-parameters",
     .broken = [](const RuleQuestion& q) { return q.parallel.offload_parameters != OffloadTo::kNowhere; }},
    {.id = "pp-has-stages",
     .options = "--pp --model",
     .message = "cutting {model}, of the family {family}, into the stages of a pipeline is not modelled",
     .accepted = "a model of the family llama, qwen2, qwen3, gemma or deepseek, or no --pp",
     .broken = [](const RuleQuestion& q) { return !has_stages(q); }},
    {.id = "pp-stages-have-layers",
     .options = "--pp --virtual-stages --model",
     .message = "{} stages are more than the {layers} layers of {model}, and each stage holds at least one",
     .accepted = "fewer stages",
     .broken = [](const RuleQuestion& q) { return q.sizes.layers && stages_of(q) > *q.sizes.layers; },
     .detail = stages},
    {.id = "stage-layers-for-each-stage",
     .options = "--stage-layers --pp --virtual-stages",
     .message = "--stage-layers gives {}",
     .accepted = "one number for each stage",
     .broken =
         [](const RuleQuestion& q) {
           return !q.parallel.stage_layers.empty() &&
                  static_cast<std::int64_t>(q.parallel.stage_layers.size()) != stages_of(q);
         },
     .detail = numbers_of_layers},
    {.id = "stage-layers-from-one",
     .options = "--stage-layers --model",
     .message = "--stage-layers gives a stage less than 1 layer, or more than the {layers} of {model}",
     .accepted = "numbers from 1 that sum up to the layers",
     .broken =
         [](const RuleQuestion& q) {
           const auto& layers = q.parallel.stage_layers;
           return std::any_of(layers.begin(), layers.end(),
                              [&](std::int64_t each) { return each < 1 || each > q.sizes.layers.value_or(0); });
         }},
    {.id = "stage-layers-hold-all",
     .options = "--stage-layers --model",
     .message = "--stage-layers gives {} layers to the stages, and {model} has {layers}",
     .accepted = "numbers from 1 that sum up to the layers",
     .broken =
         [](const RuleQuestion& q) {
           return !q.parallel.stage_layers.empty() && sum_of_layers(q) != q.sizes.layers.value_or(0);
         },
     .detail = [](const RuleQuestion& q) { return std::to_string(sum_of_layers(q)); }},
    {.id = "pp-task",
     .options = "--task --pp",
     .message = "pipelines are modelled for causal models, not for task {--task}",
     .accepted = "--task causal",
     .broken = [](const RuleQuestion& q) { return !is_causal(q); }},
    {.id = "pp-padding",
     .options = "--padding --pp",
     .message = "the stages of a pipeline pass no attention mask on, so sequences cannot be padded",
     .accepted = "no --padding",
     .broken = [](const RuleQuestion& q) { return q.run.padding; }},
    {.id = "pp-loss-scaler",
     .options = "--precision --pp",
     .message = "torch's pipelines run the backward pass by themselves and know no loss scaler",
     .accepted = "--precision amp-bf16, bf16 or fp32",
     .broken = [](const RuleQuestion& q) { return q.run.precision == Precision::kAmpFp16; }},
    {.id = "pp-accumulation",
     .options = "--accum --pp",
     .message = "a pipeline accumulates gradients over its own micro-batches, not over --accum",
     .accepted = "--micro-batches in the place of --accum",
     .broken = [](const RuleQuestion& q) { return training_of(q).accumulation_steps > 1; }},
    {.id = "pp-micro-batches",
     .options = "--micro-batches --pp",
     .message = "{} micro-batches are more than the 256 that are modelled of torch's pipelines",
     .accepted = "--micro-batches 256 or fewer",
     .broken = [](const RuleQuestion& q) { return micro_batches_of(q.parallel) > kMostMicroBatches; },
     .detail = micro_batches},
};

// --- their schedules

bool has_schedule(const RuleQuestion& q, PipelineSchedule schedule) { return q.parallel.schedule == schedule; }

/// A backward pass in two halves, of which the second goes around autograd's hooks and finds weights by
/// module.parameters().
bool splits_backward(const RuleQuestion& q) {
  return has_schedule(q, PipelineSchedule::kZeroBubble) || has_schedule(q, PipelineSchedule::kZeroBubbleV);
}

/// Schedules of several stages a rank run micro-batches in rounds.
std::int64_t rounds(const RuleQuestion& q) {
  return std::max<std::int64_t>(1, micro_batches_of(q.parallel) / q.parallel.pipeline);
}

std::string micro_batches_and_rounds(const RuleQuestion& q) {
  return fmt::format("{} micro-batches do not make {} of them", micro_batches_of(q.parallel), rounds(q));
}

constexpr Rule kSchedules[] = {
    {.id = "pp-rounds",
     .options = "--micro-batches --pp --schedule",
     .message = "schedule {--schedule} runs micro-batches in equal rounds, and {}",
     .accepted = "--micro-batches with a multiple of {--pp}",
     .broken =
         [](const RuleQuestion& q) {
           const bool in_rounds =
               has_schedule(q, PipelineSchedule::kZeroBubble) || has_schedule(q, PipelineSchedule::kInterleaved);
           return in_rounds && micro_batches_of(q.parallel) % rounds(q) != 0;
         },
     .detail = micro_batches_and_rounds},
    {.id = "zbv-has-two-stages",
     .options = "--virtual-stages --schedule",
     .message = "schedule zbv has two stages on each rank, not {--virtual-stages}",
     .accepted = "--virtual-stages 2",
     .broken =
         [](const RuleQuestion& q) {
           return has_schedule(q, PipelineSchedule::kZeroBubbleV) && q.parallel.virtual_stages != 2;
         }},
    {.id = "interleaved-has-virtual-stages",
     .options = "--virtual-stages --schedule",
     .message = "schedule interleaved runs several stages on each rank, and this run has one",
     .accepted = "--virtual-stages 2 or more",
     .broken =
         [](const RuleQuestion& q) {
           return has_schedule(q, PipelineSchedule::kInterleaved) && q.parallel.virtual_stages == 1;
         }},
    {.id = "schedule-has-one-stage",
     .options = "--virtual-stages --schedule",
     .message = "schedule {--schedule} runs one stage on each rank, not {--virtual-stages}",
     .accepted = "no --virtual-stages, or --schedule interleaved, zero-bubble or zbv",
     .broken =
         [](const RuleQuestion& q) {
           const bool one =
               has_schedule(q, PipelineSchedule::kGpipe) || has_schedule(q, PipelineSchedule::kOneForwardOneBackward);
           return one && q.parallel.virtual_stages > 1;
         }},
    {.id = "pp-1f1b-fills-stages",
     .options = "--micro-batches --pp --schedule",
     .message = "Schedule1F1B needs as many micro-batches as stages, {--pp}, or more, and there are {}",
     .accepted = "--micro-batches {--pp} or more, or --schedule gpipe",
     .broken =
         [](const RuleQuestion& q) {
           return has_schedule(q, PipelineSchedule::kOneForwardOneBackward) &&
                  micro_batches_of(q.parallel) < q.parallel.pipeline;
         },
     .detail = micro_batches},
};

constexpr Rule kZeroBubble[] = {
    {.id = "zero-bubble-ddp",
     .options = "--schedule --parallel",
     .message = "schedule {--schedule} splits the backward pass in two, and DistributedDataParallel never sees the "
                "gradients of the second half",
     .accepted = "--parallel fsdp2 --no-reshard-after-forward",
     .broken = is_ddp},
    {.id = "zero-bubble-reshard",
     .options = "--schedule --no-reshard-after-forward --parallel",
     .message = "schedule {--schedule} splits the backward pass in two, and its first half does not find weights that "
                "FSDP2 takes away after forward",
     .accepted = "--no-reshard-after-forward",
     .broken = [](const RuleQuestion& q) { return is_fsdp2(q) && reshards(q); }},
    {.id = "zero-bubble-fsdp2-checkpointing",
     .options = "--checkpointing --schedule --parallel",
     .message = "checkpointing beside FSDP2 with schedule {--schedule} is not modelled",
     .accepted = "--checkpointing none",
     .broken = [](const RuleQuestion& q) { return is_fsdp2(q) && checkpoints(q); }},
    {.id = "zero-bubble-selective-checkpointing",
     .options = "--checkpointing --schedule",
     .message = "schedule {--schedule} splits the backward pass in two, and torch runs a selectively checkpointed "
                "layer backward once only",
     .accepted = "--checkpointing none or full",
     .broken = [](const RuleQuestion& q) { return q.run.checkpointing() == Checkpointing::kSelective; }},
};

bool is_pipeline(const RuleQuestion& q) { return is_shared_out(q) && q.parallel.pipeline > 1; }
bool splits_layers(const RuleQuestion& q) {
  return is_shared_out(q) && (q.parallel.tensor > 1 || q.parallel.expert > 1);
}

constexpr RuleGroup kGroups[] = {
    {.title = "Options of data-parallel modes (torch)", .concerns = is_shared_out, .rules = kModes},
    {.title = "Pipelines (torch)", .concerns = is_pipeline, .rules = kPipelines},
    {.title = "Schedules of pipelines (torch)", .concerns = is_pipeline, .rules = kSchedules},
    {.title = "Zero bubble (torch)",
     .concerns = [](const RuleQuestion& q) { return is_pipeline(q) && splits_backward(q); },
     .rules = kZeroBubble},
    {.title = "nn.DataParallel",
     .concerns = [](const RuleQuestion& q) { return is_shared_out(q) && is_mode(q, DataParallel::kDp); },
     .rules = kReplicas},
    {.title = "Several GPUs in the Trainer",
     .concerns = [](const RuleQuestion& q) { return is_shared_out(q) && q.run.uses_trainer(); },
     .rules = kTrainer},
    {.title = "Context parallelism (torch)",
     .concerns = [](const RuleQuestion& q) { return is_torch_parallel(q) && q.parallel.context > 1; },
     .rules = kContextParallel},
    {.title = "Expert parallelism (torch)",
     .concerns = [](const RuleQuestion& q) { return is_shared_out(q) && q.parallel.expert > 1; },
     .rules = kExpertParallel},
    {.title = "Split sequences and logits (torch)",
     .concerns =
         [](const RuleQuestion& q) { return is_shared_out(q) && (q.parallel.sequence_parallel || splits_loss(q)); },
     .rules = kSplitSequence},
    {.title = "Data-parallel modes beside tensor parallelism (torch)",
     .concerns = splits_layers,
     .rules = kTensorParallelModes},
    {.title = "Sequence parallelism (torch)",
     .concerns = [](const RuleQuestion& q) { return splits_layers(q) && q.parallel.sequence_parallel; },
     .rules = kSequenceParallel},
    {.title = "Tensor parallelism without --sp (torch)",
     .concerns = [](const RuleQuestion& q) { return splits_layers(q) && !q.parallel.sequence_parallel; },
     .rules = kTensorParallel},
    {.title = "Offload of shards (torch)",
     .concerns =
         [](const RuleQuestion& q) {
           return is_torch_parallel(q) && (q.parallel.offload_states != OffloadTo::kNowhere ||
                                           q.parallel.offload_parameters != OffloadTo::kNowhere);
         },
     .rules = kOffload},
};

}  // namespace

std::span<const RuleGroup> rules_of_torch() { return kGroups; }

}  // namespace memcalc
