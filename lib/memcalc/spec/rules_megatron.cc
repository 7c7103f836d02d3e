// What Megatron-LM refuses (megatron/core/model_parallel_config.py, transformer_config.py, dot_product_attention.py,
// core_r0.14.0), and what of it is modelled.
// Covered by tests/unit/rules_megatron_test.cc.
// MIRRORS(megatron, "core/model_parallel_config.py", "0.14.0")
// MIRRORS(megatron, "core/transformer/dot_product_attention.py", "0.14.0")
// MIRRORS(megatron, "core/transformer/transformer_config.py", "0.14.0")
#include <fmt/core.h>

#include <algorithm>

#include "memcalc/spec/parallel.h"
#include "memcalc/spec/rule_tables.h"
#include "memcalc/spec/rule_words.h"

namespace memcalc {
namespace {

const MegatronLayout& options_of(const RuleQuestion& q) { return q.parallel.megatron(); }

/// The family says what its shape is there.
bool is_built(const RuleQuestion& q) {
  const Family* const family = family_of(q.model);
  return family != nullptr && family->to_megatron != nullptr;
}

constexpr Rule kTraining[] = {
    {.id = "megatron-builds-family",
     .options = "--model --framework",
     .message = "Megatron-core's models do not build {model}, of the family {family}",
     .accepted = "GPT-2, LLaMA, Mistral, Qwen2, Qwen3, Mixtral, Qwen3-MoE, DeepSeek-V2, DeepSeek-V3, Nemotron-H, BERT, "
                 "T5, or --framework torch",
     .broken = [](const RuleQuestion& q) { return !is_built(q); }},
    {.id = "megatron-trains",
     .options = "--infer --framework",
     .message = "inference under Megatron is not modelled",
     .accepted = "no --infer, or --framework torch",
     .broken = [](const RuleQuestion& q) { return !trains(q); }},
    {.id = "megatron-task",
     .options = "--task --framework",
     .message = "task {--task} under Megatron is not modelled",
     .accepted = "--task causal; of BERT mlm, of T5 seq2seq",
     .broken = [](const RuleQuestion& q) { return q.run.task != megatron_task(q.model); }},
    {.id = "megatron-precision",
     .options = "--precision --framework",
     .message = "precision {--precision} is not Megatron's",
     .accepted = "--precision bf16, fp16 or fp32",
     .broken =
         [](const RuleQuestion& q) {
           return q.run.precision != Precision::kBf16 && q.run.precision != Precision::kFp16 &&
                  q.run.precision != Precision::kFp32;
         }},
    {.id = "megatron-optimizer",
     .options = "--optimizer --framework",
     .message = "optimizer {--optimizer} under Megatron is not modelled",
     .accepted = "--optimizer adamw (TransformerEngine's FusedAdam) or muon",
     .broken =
         [](const RuleQuestion& q) {
           return training_of(q).optimizer != Optimizer::kAdamWForeach &&
                  training_of(q).optimizer != Optimizer::kMuon && training_of(q).optimizer != Optimizer::kAdamWFused &&
                  training_of(q).optimizer != Optimizer::kAdam;
         }},
    // core/optimizer/layer_wise_optimizer.py shares out whole matrices.
    {.id = "megatron-muon-distributed",
     .options = "--optimizer --parallel --framework",
     .message = "Muon with the distributed optimizer, which shares out whole matrices, is not modelled",
     .accepted = "--parallel ddp",
     .broken =
         [](const RuleQuestion& q) {
           return training_of(q).optimizer == Optimizer::kMuon &&
                  q.parallel.data_parallel == DataParallel::kMegatronDist;
         }},
    // core/optimizer/__init__.py, _get_megatron_emerging_optimizer
    {.id = "megatron-muon-fp16",
     .options = "--optimizer --precision --framework",
     .message = "Megatron-core refuses Muon with fp16",
     .accepted = "--precision bf16",
     .broken =
         [](const RuleQuestion& q) {
           return training_of(q).optimizer == Optimizer::kMuon && q.run.precision == Precision::kFp16;
         }},
    {.id = "megatron-attention",
     .options = "--attn --framework",
     .message = "--attn {--attn} is transformers', and Megatron-core has attentions of its own",
     .accepted = "--megatron attention-backend=unfused or fused",
     .broken = [](const RuleQuestion& q) { return q.run.attention != Attention::kSdpa; }},
    {.id = "megatron-checkpointing",
     .options = "--checkpointing --framework",
     .message = "Megatron-LM recomputes all layers of a stage or the first ones, not every N-th",
     .accepted = "--checkpointing full with --megatron recompute-method=block,recompute-num-layers=N",
     .broken = [](const RuleQuestion& q) { return training_of(q).checkpoint_every != 1; }},
    {.id = "megatron-adapters",
     .options = "--lora --framework",
     .message = "LoRA under Megatron is not modelled",
     .accepted = "no --lora, or --framework torch",
     .broken = has_adapters},
    {.id = "megatron-frozen",
     .options = "--freeze --framework",
     .message = "frozen parameters under Megatron are not modelled",
     .accepted = "no --freeze",
     .broken = [](const RuleQuestion& q) { return !q.run.fine_tuning.frozen.empty(); }},
    {.id = "megatron-liger",
     .options = "--liger --framework",
     .message = "Liger's kernels are for transformers, and Megatron-core has its own",
     .accepted = "no --liger",
     .broken = has_liger},
    {.id = "megatron-padding",
     .options = "--padding --framework",
     .message = "Megatron-LM trains on sequences of full length, without padding",
     .accepted = "no --padding",
     .broken = [](const RuleQuestion& q) { return q.run.padding; }},
    {.id = "megatron-cache",
     .options = "--use-cache --framework",
     .message = "Megatron-LM trains without a KV cache",
     .accepted = "no --use-cache",
     .broken = [](const RuleQuestion& q) { return q.run.use_cache; }},
    {.id = "megatron-compile",
     .options = "--compile --framework",
     .message = "Megatron-core compiles parts of its own in every run, and --compile changes none of it",
     .accepted = "no --compile",
     .broken = [](const RuleQuestion& q) { return q.run.compiles(); }},
    {.id = "megatron-activation-offload",
     .options = "--activation-offload --framework",
     .message = "offload of activations under Megatron is not modelled",
     .accepted = "no --activation-offload, or --checkpointing full",
     .broken = [](const RuleQuestion& q) { return training_of(q).offload_activations; }},
    {.id = "megatron-optimizer-offload",
     .options = "--offload-optimizer --framework",
     .message = "offload of the optimizer under Megatron is not modelled",
     .accepted = "no --offload-optimizer, or --parallel megatron-dist on several GPUs",
     .broken = [](const RuleQuestion& q) { return training_of(q).offload_optimizer; }},
    {.id = "megatron-has-mode",
     .options = "--parallel --framework",
     .message = "--parallel {--parallel} is not Megatron's",
     .accepted = "--parallel megatron-dist (the distributed optimizer) or ddp (Megatron's own)",
     .broken =
         [](const RuleQuestion& q) {
           const DataParallel mode = q.parallel.data_parallel;
           return mode != DataParallel::kNone && mode != DataParallel::kDdp && mode != DataParallel::kMegatronDist;
         }},
    {.id = "megatron-states-offload",
     .options = "--offload-states --framework",
     .message = "offload of optimizer states under Megatron is not modelled",
     .accepted = "no --offload-states, or --framework deepspeed",
     .broken = [](const RuleQuestion& q) { return q.parallel.offload_states != OffloadTo::kNowhere; }},
    {.id = "megatron-parameters-offload",
     .options = "--offload-parameters --framework",
     .message = "offload of parameters under Megatron is not modelled",
     .accepted = "no --offload-parameters, or --parallel fsdp2 or ds-zero3",
     .broken = [](const RuleQuestion& q) { return q.parallel.offload_parameters != OffloadTo::kNowhere; }},
};

// --- the list --megatron

bool has_uneven_ends(const RuleQuestion& q) {
  return options_of(q).first_stage_layers > 0 || options_of(q).last_stage_layers > 0;
}
bool counts_ends(const RuleQuestion& q) { return options_of(q).counts_embedding || options_of(q).counts_loss; }

constexpr Rule kArguments[] = {
    {.id = "megatron-deferral-needs-pipeline",
     .options = "--megatron --pp",
     .message = "defer-embedding-wgrad-compute needs a pipeline",
     .accepted = "--pp 2 or more",
     .broken = [](const RuleQuestion& q) { return options_of(q).defers_head_gradient && q.parallel.pipeline == 1; }},
    {.id = "megatron-deferral-needs-fusion",
     .options = "--megatron",
     .message = "defer-embedding-wgrad-compute cannot be used with no-gradient-accumulation-fusion",
     .accepted = "one of the two",
     .broken =
         [](const RuleQuestion& q) {
           return options_of(q).defers_head_gradient && !options_of(q).fuses_weight_gradients;
         }},
    {.id = "megatron-deferral-limit",
     .options = "--megatron",
     .message = "wgrad-deferral-limit needs defer-embedding-wgrad-compute",
     .accepted = "--megatron defer-embedding-wgrad-compute,wgrad-deferral-limit=N",
     .broken =
         [](const RuleQuestion& q) { return options_of(q).deferral_limit > 0 && !options_of(q).defers_head_gradient; }},
    // core/transformer/transformer_config.py, __post_init__: without a number it raises ValueError.
    {.id = "megatron-block-needs-layers",
     .options = "--megatron",
     .message = "recompute-method=block recomputes the first layers of a stage, and how many is not said",
     .accepted = "--megatron recompute-method=block,recompute-num-layers=N",
     .broken =
         [](const RuleQuestion& q) { return options_of(q).recomputes_blocks && options_of(q).recompute_layers == 0; }},
    {.id = "megatron-layer-scaling",
     .options = "--megatron",
     .message = "apply-query-key-layer-scaling is modelled with transformer-impl=local alone",
     .accepted = "--megatron apply-query-key-layer-scaling,transformer-impl=local",
     .broken =
         [](const RuleQuestion& q) {
           return options_of(q).scales_by_layer && options_of(q).attention != MegatronAttention::kLocal;
         }},
    {.id = "megatron-softmax-fusion",
     .options = "--megatron",
     .message = "no-masked-softmax-fusion is an argument of Megatron's own attention, not of TransformerEngine's",
     .accepted = "--megatron no-masked-softmax-fusion,transformer-impl=local",
     .broken =
         [](const RuleQuestion& q) {
           return !options_of(q).fuses_softmax && options_of(q).attention != MegatronAttention::kLocal;
         }},
    // dot_product_attention/utils.py: flash-attn 2 takes one head width alone.
    {.id = "megatron-flash-latent",
     .options = "--megatron --model",
     .message = "attention-backend=flash does not take latent attention, whose keys and values differ in width",
     .accepted = "--megatron attention-backend=fused or unfused",
     .broken =
         [](const RuleQuestion& q) {
           return options_of(q).attention == MegatronAttention::kFlash && has(q, &Family::has_latent_attention);
         }},
    // backends.py, FlashAttention: it takes padded tokens out first, as many as the data has.
    {.id = "megatron-flash-padding",
     .options = "--megatron --model",
     .message = "attention-backend=flash of {model}, whose padding mask takes tokens out, is not modelled",
     .accepted = "--megatron attention-backend=fused or unfused",
     .broken =
         [](const RuleQuestion& q) {
           return options_of(q).attention == MegatronAttention::kFlash && megatron_task(q.model) != Task::kCausalLm;
         }},
    {.id = "megatron-one-activation",
     .options = "--megatron",
     .message = "squared-relu cannot be used with swiglu",
     .accepted = "one of the two",
     .broken =
         [](const RuleQuestion& q) { return options_of(q).squared_relu && options_of(q).swiglu.value_or(false); }},
    {.id = "megatron-unfused-rope-with-cp",
     .options = "--megatron --cp",
     .message = "no-rope-fusion beside context parallelism is not modelled",
     .accepted = "one of the two",
     .broken = [](const RuleQuestion& q) { return !options_of(q).fuses_rope && q.parallel.context > 1; }},
    {.id = "megatron-counts-or-says-ends",
     .options = "--megatron",
     .message = "account-for-embedding-in-pipeline-split and account-for-loss-in-pipeline-split cannot be used with "
                "decoder-first-pipeline-num-layers or decoder-last-pipeline-num-layers",
     .accepted = "one of the two ways",
     .broken = [](const RuleQuestion& q) { return counts_ends(q) && has_uneven_ends(q); }},
    {.id = "megatron-position-table",
     .options = "--megatron --seq --target-seq",
     .message = "max-position-embeddings={} is less than the tokens of a sequence",
     .accepted = "as many as --seq and --target-seq",
     .broken =
         [](const RuleQuestion& q) {
           const std::int64_t most = options_of(q).max_positions;
           return most > 0 && most < std::max(q.run.sequence_length, q.run.target_sequence_length);
         },
     .detail = [](const RuleQuestion& q) { return std::to_string(options_of(q).max_positions); }},
};

// --- pipelines

std::int64_t counted_ends(const RuleQuestion& q) {
  return (options_of(q).counts_embedding ? 1 : 0) + (options_of(q).counts_loss ? 1 : 0);
}

/// What the stages share out evenly: all layers but those that the first and last stage are told to hold, and a place
/// each for the embedding and the loss where they are counted (transformer_block.py, get_num_layers_to_build).
std::int64_t places(const RuleQuestion& q) {
  return q.sizes.layers.value_or(0) + counted_ends(q) - options_of(q).first_stage_layers -
         options_of(q).last_stage_layers;
}

std::int64_t even_stages(const RuleQuestion& q) {
  return q.parallel.pipeline - (options_of(q).first_stage_layers > 0 ? 1 : 0) -
         (options_of(q).last_stage_layers > 0 ? 1 : 0);
}

std::int64_t even_chunks(const RuleQuestion& q) { return even_stages(q) * q.parallel.virtual_stages; }

/// "12 layers (with embedding and loss, as counted) over 4 stages x 3 virtual ones"
std::string even_split(const RuleQuestion& q) {
  std::string text = fmt::format("{} layers", places(q));
  if (counted_ends(q) > 0) text += " (with embedding and loss, as counted)";
  text += fmt::format(" over {} stages", even_stages(q));
  if (q.parallel.virtual_stages > 1) text += fmt::format(" x {} virtual ones", q.parallel.virtual_stages);
  return text;
}

constexpr Rule kPipelines[] = {
    {.id = "megatron-schedules",
     .options = "--schedule --framework",
     .message = "schedule {--schedule} is not Megatron-core's",
     .accepted = "--schedule 1f1b or interleaved",
     .broken =
         [](const RuleQuestion& q) {
           return q.parallel.schedule != PipelineSchedule::kOneForwardOneBackward &&
                  q.parallel.schedule != PipelineSchedule::kInterleaved;
         }},
    {.id = "megatron-uneven-ends",
     .options = "--megatron --pp --virtual-stages",
     .message = "decoder-first-pipeline-num-layers and decoder-last-pipeline-num-layers are modelled for pipelines "
                "without virtual stages",
     .accepted = "--pp 2 or more, no --virtual-stages",
     .broken =
         [](const RuleQuestion& q) {
           return has_uneven_ends(q) && (q.parallel.pipeline == 1 || q.parallel.virtual_stages > 1);
         }},
    {.id = "megatron-stages-hold-all-layers",
     .options = "--megatron --pp",
     .message = "the first and last stage take {}",
     .accepted = "other numbers for decoder-first-pipeline-num-layers and decoder-last-pipeline-num-layers",
     .broken = [](const RuleQuestion& q) { return places(q) < 0 || (even_chunks(q) <= 0 && places(q) != 0); },
     .detail =
         [](const RuleQuestion& q) {
           return fmt::format("{} layers, which leaves {} for {} other stages",
                              options_of(q).first_stage_layers + options_of(q).last_stage_layers, places(q),
                              even_stages(q));
         }},
    {.id = "megatron-stages-are-even",
     .options = "--pp --virtual-stages --model",
     .message = "{} cannot be spread evenly",
     .accepted =
         "a divisor for --pp, or --megatron decoder-first-pipeline-num-layers=N, decoder-last-pipeline-num-layers=N",
     .broken = [](const RuleQuestion& q) { return even_chunks(q) > 0 && places(q) % even_chunks(q) != 0; },
     .detail = even_split},
    {.id = "megatron-interleaved-needs-virtual-stages",
     .options = "--schedule --virtual-stages",
     .message = "schedule interleaved runs several chunks of layers on each rank, and this run has one",
     .accepted = "--virtual-stages 2 or more",
     .broken =
         [](const RuleQuestion& q) {
           return q.parallel.schedule == PipelineSchedule::kInterleaved && q.parallel.virtual_stages == 1;
         }},
};

constexpr Rule kVirtualStages[] = {
    {.id = "megatron-virtual-stages-of-pipelines",
     .options = "--virtual-stages --pp",
     .message = "--virtual-stages needs a pipeline",
     .accepted = "--pp 2 or more",
     .broken = [](const RuleQuestion& q) { return q.parallel.pipeline == 1; }},
    {.id = "megatron-interleaved-micro-batches",
     .options = "--micro-batches --pp",
     .message = "{} micro-batches are no multiple of --pp {--pp}, as virtual stages need",
     .accepted =
         "--micro-batches with a multiple of {--pp}, or --megatron microbatch-group-size-per-virtual-pipeline-stage=N",
     .broken =
         [](const RuleQuestion& q) {
           return options_of(q).micro_batch_group == 0 && q.parallel.pipeline > 0 &&
                  micro_batches_of(q.parallel) % q.parallel.pipeline != 0;
         },
     .detail = [](const RuleQuestion& q) { return std::to_string(micro_batches_of(q.parallel)); }},
};

std::string group_of_all(const RuleQuestion& q) {
  return fmt::format("{}, of {} micro-batches", options_of(q).micro_batch_group, micro_batches_of(q.parallel));
}

constexpr Rule kGroupsOfMicroBatches[] = {
    {.id = "megatron-group-needs-virtual-stages",
     .options = "--megatron --virtual-stages",
     .message = "microbatch-group-size-per-virtual-pipeline-stage needs virtual stages",
     .accepted = "--virtual-stages 2 or more",
     .broken = [](const RuleQuestion& q) { return q.parallel.virtual_stages == 1; }},
    {.id = "megatron-group-size",
     .options = "--megatron --pp --micro-batches",
     .message = "microbatch-group-size-per-virtual-pipeline-stage={}: every group, the last one too, needs a "
                "micro-batch for each of {--pp} stages",
     .accepted = "a number from --pp to --micro-batches that leaves no smaller group",
     .broken =
         [](const RuleQuestion& q) {
           const std::int64_t group = options_of(q).micro_batch_group, stages = q.parallel.pipeline;
           const std::int64_t micro_batches = micro_batches_of(q.parallel), last = micro_batches % group;
           return group < stages || group > micro_batches || (last > 0 && last < stages);
         },
     .detail = group_of_all},
};

// --- sequences

/// Two halves a context-parallel rank, for the balance of the causal mask; a part a tensor-parallel rank under --sp.
std::int64_t pieces(const RuleQuestion& q) {
  const Parallel& p = q.parallel;
  return (p.context > 1 ? 2 * p.context : 1) * (p.sequence_parallel ? p.tensor : 1);
}

std::int64_t key_value_heads_of_rank(const RuleQuestion& q) {
  const bool latent = has(q, &Family::has_latent_attention);
  const std::int64_t heads = (latent ? q.sizes.heads : q.sizes.key_value_heads).value_or(0);
  return q.parallel.tensor > 0 ? heads / q.parallel.tensor : 0;
}

constexpr Rule kSequences[] = {
    {.id = "megatron-splits-sequence",
     .options = "--seq --cp --sp",
     .message = "--seq {--seq} is no multiple of {}: Megatron-core cuts a sequence into two pieces for each --cp rank, "
                "and over the --tp ranks under --sp",
     .accepted = "--seq with a multiple of {}",
     .broken = [](const RuleQuestion& q) { return pieces(q) > 0 && q.run.sequence_length % pieces(q) != 0; },
     .detail = [](const RuleQuestion& q) { return std::to_string(pieces(q)); }},
    {.id = "megatron-ulysses-splits-key-value-heads",
     .options = "--cp --tp --cp-type",
     .message = "the {} key/value heads of a tensor-parallel rank cannot be split evenly over {--cp} ranks of Ulysses",
     .accepted = "--cp with a divisor of {}, or --cp-type ring or all-gather",
     .broken =
         [](const RuleQuestion& q) {
           return q.parallel.context > 1 && q.parallel.context_type == ContextParallel::kUlysses &&
                  key_value_heads_of_rank(q) % q.parallel.context != 0;
         },
     .detail = [](const RuleQuestion& q) { return std::to_string(key_value_heads_of_rank(q)); }},
};

// --- encoders

/// Megatron-core's BertModel or T5Model, not its GPTModel.
bool has_encoder(const RuleQuestion& q) { return is_encoder(q.model) || is_encoder_decoder(q.model); }

constexpr Rule kEncoders[] = {
    {.id = "megatron-encoder-positions",
     .options = "--megatron --model",
     .message = "rotary positions in Megatron-core's BERT and T5 are not modelled",
     .accepted = "no position-embedding-type=rope",
     .broken = [](const RuleQuestion& q) { return options_of(q).rotary.value_or(false); }},
    // pretrain_bert.py and pretrain_t5.py do not cut their batches along the sequence.
    {.id = "megatron-encoder-context",
     .options = "--cp --model",
     .message = "Megatron-LM's BERT and T5 have no context parallelism",
     .accepted = "no --cp",
     .broken = [](const RuleQuestion& q) { return q.parallel.context > 1; }},
    {.id = "megatron-t5-pipeline",
     .options = "--pp --model",
     .message = "Megatron-LM's T5 has no pipeline parallelism (pretrain_t5.py, model_provider)",
     .accepted = "no --pp",
     .broken = [](const RuleQuestion& q) { return is_encoder_decoder(q.model) && q.parallel.pipeline > 1; }},
    {.id = "megatron-t5-target",
     .options = "--target-seq --sp",
     .message = "--target-seq {} is no multiple of --tp {--tp}, over which --sp cuts it",
     .accepted = "--target-seq with a multiple of --tp",
     .broken =
         [](const RuleQuestion& q) {
           return is_encoder_decoder(q.model) && q.parallel.sequence_parallel && q.parallel.tensor > 0 &&
                  q.run.target_sequence_length % q.parallel.tensor != 0;
         },
     .detail = [](const RuleQuestion& q) { return std::to_string(q.run.target_sequence_length); }},
};

// --- experts

std::int64_t expert_tensor(const RuleQuestion& q) {
  return options_of(q).expert_tensor > 0 ? options_of(q).expert_tensor : q.parallel.tensor;
}

std::int64_t ranks_of_experts(const RuleQuestion& q) {
  return expert_tensor(q) * q.parallel.expert * q.parallel.pipeline;
}

std::string product_of_experts(const RuleQuestion& q) {
  return fmt::format("expert tensor {} x ep {} x pp {} = {}", expert_tensor(q), q.parallel.expert, q.parallel.pipeline,
                     ranks_of_experts(q));
}

constexpr Rule kExperts[] = {
    {.id = "megatron-experts-need-sp",
     .options = "--sp --tp --model",
     .message = "Megatron-core needs sequence parallelism beside tensor parallelism of models with experts",
     .accepted = "--sp",
     .broken = [](const RuleQuestion& q) { return q.parallel.tensor > 1 && !q.parallel.sequence_parallel; }},
    {.id = "megatron-gathered-capacity",
     .options = "--megatron",
     .message = "moe-expert-capacity-factor with moe-token-dispatcher-type=allgather is not modelled",
     .accepted = "moe-token-dispatcher-type=alltoall, or no moe-expert-capacity-factor",
     .broken = [](const RuleQuestion& q) { return options_of(q).gathers_tokens && options_of(q).expert_capacity; }},
    {.id = "megatron-experts-bias",
     .options = "--megatron --model",
     .message = "biases of experts (disable-bias-linear=false) are not modelled",
     .accepted = "--megatron disable-bias-linear",
     .broken = [](const RuleQuestion& q) { return options_of(q).bias_linear.value_or(false); }},
    {.id = "megatron-gpus-hold-whole-experts",
     .options = "--gpus --ep --pp --megatron",
     .message = "one copy of the experts takes {} GPUs, and {--gpus} is no multiple of that",
     .accepted = "--gpus with a multiple of that",
     .broken =
         [](const RuleQuestion& q) {
           const std::int64_t ranks = ranks_of_experts(q);
           return ranks > 0 && q.parallel.gpus % ranks != 0;
         },
     .detail = product_of_experts},
};

constexpr RuleGroup kGroups[] = {
    {.title = "Megatron-LM", .concerns = is_megatron, .rules = kTraining},
    {.title = "Megatron-LM's arguments (--megatron)", .concerns = is_megatron, .rules = kArguments},
    {.title = "Pipelines (Megatron)", .concerns = is_megatron, .rules = kPipelines},
    {.title = "Virtual stages (Megatron)",
     .concerns = [](const RuleQuestion& q) { return is_megatron(q) && q.parallel.virtual_stages > 1; },
     .rules = kVirtualStages},
    {.title = "Groups of micro-batches (Megatron)",
     .concerns = [](const RuleQuestion& q) { return is_megatron(q) && options_of(q).micro_batch_group > 0; },
     .rules = kGroupsOfMicroBatches},
    {.title = "Sequences (Megatron)", .concerns = is_megatron, .rules = kSequences},
    {.title = "BERT and T5 (Megatron)",
     .concerns = [](const RuleQuestion& q) { return is_megatron(q) && is_built(q) && has_encoder(q); },
     .rules = kEncoders},
    {.title = "Experts (Megatron)",
     .concerns = [](const RuleQuestion& q) { return is_megatron(q) && q.sizes.experts.value_or(0) > 0; },
     .rules = kExperts},
};

}  // namespace

std::span<const RuleGroup> rules_of_megatron() { return kGroups; }

}  // namespace memcalc
