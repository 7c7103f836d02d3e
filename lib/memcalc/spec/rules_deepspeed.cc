// What DeepSpeed refuses, and what of it is modelled: ZeRO, its offload, and sequence parallelism by Ulysses.
// Covered by tests/unit/rules_deepspeed_test.cc.
// MIRRORS(deepspeed, "runtime/sequence_parallel/ulysses_sp.py", "0.19.8")
// MIRRORS(peft, "utils/other.py", "0.21.2")
#include "memcalc/spec/parallel.h"
#include "memcalc/spec/rule_tables.h"
#include "memcalc/spec/rule_words.h"

namespace memcalc {
namespace {

bool is_third_stage(const RuleQuestion& q) { return q.parallel.data_parallel == DataParallel::kDsZero3; }

bool trains_adapted_head(const RuleQuestion& q) {
  return has_classifier(q.run.task) && has_adapters(q) && q.run.fine_tuning.lora->trains_head;
}

constexpr Rule kZero[] = {
    {.id = "deepspeed-has-mode",
     .options = "--parallel --framework",
     .message = "--parallel {--parallel} is not DeepSpeed's",
     .accepted = "--parallel ds-zero1, ds-zero2 or ds-zero3",
     .broken = [](const RuleQuestion& q) { return framework_of(q.parallel.data_parallel) != Framework::kDeepSpeed; }},
    {.id = "deepspeed-tp",
     .options = "--tp --framework",
     .message = "tensor parallelism under DeepSpeed is not modelled",
     .accepted = "no --tp, or --framework torch or megatron",
     .broken = [](const RuleQuestion& q) { return q.parallel.tensor > 1; }},
    {.id = "deepspeed-pp",
     .options = "--pp --framework",
     .message = "pipelines under DeepSpeed are not modelled",
     .accepted = "no --pp, or --framework torch or megatron",
     .broken = [](const RuleQuestion& q) { return q.parallel.pipeline > 1; }},
    {.id = "deepspeed-ep",
     .options = "--ep --framework",
     .message = "expert parallelism under DeepSpeed is not modelled",
     .accepted = "no --ep, or --framework torch or megatron",
     .broken = [](const RuleQuestion& q) { return q.parallel.expert > 1; }},
    {.id = "deepspeed-sp",
     .options = "--sp --framework",
     .message = "--sp needs tensor parallelism, which is not modelled under DeepSpeed",
     .accepted = "--cp N --cp-type ulysses, or --framework torch or megatron",
     .broken = [](const RuleQuestion& q) { return q.parallel.sequence_parallel; }},
    {.id = "deepspeed-precision",
     .options = "--precision --framework",
     .message = "precision {--precision} under DeepSpeed is not modelled",
     .accepted = "--precision bf16, fp16 or fp32",
     .broken =
         [](const RuleQuestion& q) {
           return !q.run.uses_trainer() && q.run.precision != Precision::kBf16 && q.run.precision != Precision::kFp16 &&
                  q.run.precision != Precision::kFp32;
         }},
    {.id = "trainer-deepspeed-precision",
     .options = "--precision --framework --loop",
     .message = "loop {--loop}: precision {--precision} under DeepSpeed is not modelled",
     .accepted = "{}, or --loop bare with bf16 or fp16",
     .broken =
         [](const RuleQuestion& q) {
           const Precision precision = q.run.precision;
           const bool in_half = precision == Precision::kAmpFp16 && training_of(q).loop == Loop::kTrainer;
           return q.run.uses_trainer() && precision != Precision::kAmpBf16 && precision != Precision::kFp32 && !in_half;
         },
     .detail = [](const RuleQuestion& q) -> std::string {
       if (training_of(q).loop != Loop::kTrainer) return "--precision amp-bf16 or fp32 (--loop trainer: amp-fp16, too)";
       return q.run.precision == Precision::kFp16 ? "--precision amp-fp16, amp-bf16 or fp32"
                                                  : "--precision amp-bf16, amp-fp16 or fp32";
     }},
    {.id = "deepspeed-adapters",
     .options = "--lora --parallel --loop",
     .message = "LoRA under DeepSpeed is modelled in the Trainer, not for {--parallel} with --loop {--loop}",
     .accepted = "--loop trainer, no --lora, or --parallel fsdp2",
     .broken = [](const RuleQuestion& q) { return has_adapters(q) && !q.run.uses_trainer(); }},
    {.id = "deepspeed-zero3-trained-head",
     .options = "--lora --task --parallel",
     // peft copies the classifier, whose parts ZeRO-3 has shared out already (peft utils/other.py,
     // ModulesToSaveWrapper).
     .message = "ZeRO-3 with adapters and a classifier that trains beside them (--task {--task}) is not modelled",
     .accepted = "--parallel ds-zero2 or fsdp2",
     .broken = [](const RuleQuestion& q) { return is_third_stage(q) && trains_adapted_head(q); }},
    {.id = "deepspeed-frozen",
     .options = "--freeze --framework",
     .message = "frozen parameters under DeepSpeed are not modelled",
     .accepted = "no --freeze, or --parallel fsdp2",
     .broken = [](const RuleQuestion& q) { return !q.run.fine_tuning.frozen.empty(); }},
    {.id = "deepspeed-nvme-of-stage-3",
     .options = "--offload-states --parallel",
     .message = "only ZeRO stage 3 puts optimizer states onto NVMe",
     .accepted = "--offload-states host, or --parallel ds-zero3",
     .broken =
         [](const RuleQuestion& q) { return !is_third_stage(q) && q.parallel.offload_states == OffloadTo::kNvme; }},
    {.id = "deepspeed-parameters-of-stage-3",
     .options = "--offload-parameters --parallel",
     .message = "only ZeRO stage 3 offloads parameters",
     .accepted = "--offload-states host, or --parallel ds-zero3",
     .broken =
         [](const RuleQuestion& q) {
           return !is_third_stage(q) && q.parallel.offload_parameters != OffloadTo::kNowhere;
         }},
};

/// DeepSpeed's UlyssesSPAttentionHF (deepspeed/runtime/sequence_parallel/ulysses_sp.py).
constexpr Rule kUlysses[] = {
    {.id = "deepspeed-cp-is-ulysses",
     .options = "--cp-type --cp --framework",
     .message = "DeepSpeed splits a sequence by Ulysses, not by {--cp-type}",
     .accepted = "--cp-type ulysses",
     .broken = [](const RuleQuestion& q) { return q.parallel.context_type != ContextParallel::kUlysses; }},
    {.id = "ulysses-families",
     .options = "--cp --model --task",
     // Of these the layers hand position_ids to the attention function, which Ulysses insists on.
     .message = "Ulysses is modelled for causal models of the families llama, mistral, qwen2 and qwen3, and this is "
                "{family} with task {--task}",
     .accepted = "one of these, or no --cp",
     .broken = [](const RuleQuestion& q) { return !is_causal(q) || !has(q, &Family::ulysses); }},
    {.id = "ulysses-splits-heads",
     .options = "--cp --model",
     .message = "the {heads} attention heads of {model} cannot be split evenly over {--cp} ranks of Ulysses",
     .accepted = "--cp with a divisor of {heads}",
     .broken = [](const RuleQuestion& q) { return q.sizes.heads && *q.sizes.heads % q.parallel.context != 0; }},
    {.id = "ulysses-splits-key-value-heads",
     .options = "--cp --model",
     .message = "--cp {--cp} is neither a divisor nor a multiple of the {kv_heads} key/value heads of {model}, as "
                "Ulysses needs",
     .accepted = "--cp with a divisor or a multiple of {kv_heads}",
     .broken =
         [](const RuleQuestion& q) {
           const std::int64_t heads = q.sizes.key_value_heads.value_or(0), ranks = q.parallel.context;
           return heads > 0 && heads % ranks != 0 && ranks % heads != 0;
         }},
    {.id = "ulysses-splits-sequence",
     .options = "--cp --seq",
     .message = "--seq {--seq} cannot be split evenly over {--cp} ranks of Ulysses",
     .accepted = "--seq with a multiple of {--cp}",
     .broken = [](const RuleQuestion& q) { return q.run.sequence_length % q.parallel.context != 0; }},
    {.id = "ulysses-attention",
     .options = "--attn --cp",
     .message = "Ulysses with attention {--attn} is not modelled",
     .accepted = "--attn sdpa",
     .broken = [](const RuleQuestion& q) { return q.run.attention != Attention::kSdpa; }},
    {.id = "ulysses-padding",
     .options = "--padding --cp",
     .message = "Ulysses drops attention masks, so sequences cannot be padded",
     .accepted = "no --padding",
     .broken = [](const RuleQuestion& q) { return q.run.padding; }},
    {.id = "ulysses-liger",
     .options = "--liger --cp",
     .message = "Liger's kernels beside Ulysses are not modelled",
     .accepted = "no --liger",
     .broken = has_liger},
    {.id = "ulysses-selective-checkpointing",
     .options = "--checkpointing --cp",
     .message = "selective checkpointing with Ulysses is not modelled",
     .accepted = "--checkpointing full or none",
     .broken = [](const RuleQuestion& q) { return q.run.checkpointing() == Checkpointing::kSelective; }},
};

constexpr RuleGroup kGroups[] = {
    {.title = "DeepSpeed", .concerns = is_deepspeed, .rules = kZero},
    {.title = "Ulysses (DeepSpeed)",
     .concerns = [](const RuleQuestion& q) { return is_deepspeed(q) && q.parallel.context > 1; },
     .rules = kUlysses},
};

}  // namespace

std::span<const RuleGroup> rules_of_deepspeed() { return kGroups; }

}  // namespace memcalc
