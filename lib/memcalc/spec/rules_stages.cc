// What goes with the loading and the saving of a model. Covered by tests/unit/rules_stages_test.cc.
#include "memcalc/spec/lit_config.h"
#include "memcalc/spec/rule_tables.h"
#include "memcalc/spec/rule_words.h"

namespace memcalc {
namespace {

bool is_asked_to_load(const RuleQuestion& q) { return trains(q) && training_of(q).loading != ModelLoading::kConfig; }
/// Neither from_pretrained nor save_pretrained is there.
bool is_outside_transformers(const RuleQuestion& q) { return !is_of_transformers(q.model); }
/// By FSDP.
bool is_sharded(const RuleQuestion& q) {
  return q.parallel.data_parallel == DataParallel::kFsdp1 || q.parallel.data_parallel == DataParallel::kFsdp2;
}
bool saves_shards(const RuleQuestion& q) {
  return training_of(q).saving == ModelSaving::kFull || training_of(q).saving == ModelSaving::kSharded;
}
bool is_ddp(const RuleQuestion& q) { return q.parallel.data_parallel == DataParallel::kDdp; }
/// Data parallelism alone.
bool is_loaded_on_hosts(const RuleQuestion& q) {
  const Parallel& p = q.parallel;
  if (p.tensor > 1 || p.context > 1 || p.expert > 1 || p.pipeline > 1) return false;
  if (p.offload_states != OffloadTo::kNowhere || p.offload_parameters != OffloadTo::kNowhere) return false;
  if (training_of(q).loading == ModelLoading::kRank0) return is_sharded(q) && q.run.uses_trainer();
  return is_ddp(q) || ((is_sharded(q) || is_deepspeed(q)) && q.run.uses_trainer());
}
/// On several GPUs.
bool begins_with_loading(const RuleQuestion& q) {
  if (quantizes(q)) return is_ddp(q);  // each card loads the whole packed model, as one card does
  return reads_on_host(training_of(q).loading);
}
bool merges(const RuleQuestion& q) { return training_of(q).saving == ModelSaving::kMerge; }
bool counts_all_stages(const RuleQuestion& q) { return trains(q) && training_of(q).stages == Stages::kAll; }
bool saves(const RuleQuestion& q) { return trains(q) && training_of(q).saving != ModelSaving::kNone; }

constexpr Rule kLoading[] = {
    {.id = "load-on-several-gpus",
     .options = "--load --gpus --parallel --loop",
     .message =
         "load {--load}: on several GPUs a model is loaded on each rank's host, for DDP or, in the Trainer, FSDP and "
         "DeepSpeed",
     .accepted =
         "--load host with --parallel ddp, or in the Trainer fsdp1, fsdp2, ds-zero1, ds-zero2, ds-zero3; --load rank0 "
         "with fsdp1, fsdp2 there",
     .broken =
         [](const RuleQuestion& q) {
           return is_parallel(q) && !quantizes(q) && (!reads_on_host(training_of(q).loading) || !is_loaded_on_hosts(q));
         },
     .code = ErrorCode::kUnsupported},
    {.id = "load-rank0-of-several",
     .options = "--load --gpus",
     .message = "load rank0: there is no other rank to send the model to",
     .accepted = "--load host, or --gpus 2 or more",
     .broken = [](const RuleQuestion& q) { return !is_parallel(q) && training_of(q).loading == ModelLoading::kRank0; }},
    {.id = "load-packed-on-card",
     .options = "--load --quantize",
     .message = "load: from_pretrained packs a base in {--quantize} on the card, and takes a device map for it",
     .accepted = "--load device-map",
     .broken = [](const RuleQuestion& q) { return quantizes(q) && reads_on_host(training_of(q).loading); }},
    {.id = "load-from-transformers",
     .options = "--load --model",
     .message = "load: only models of transformers that have a family here are loaded by from_pretrained",
     .accepted = "--load config",
     .broken = [](const RuleQuestion& q) { return !quantizes(q) && is_outside_transformers(q); }},
};

constexpr Rule kSaving[] = {
    {.id = "save-counts-all-stages",
     .options = "--save --stages",
     .message = "save: what a model's saving takes counts only where all stages do",
     .accepted = "--stages all",
     .broken = [](const RuleQuestion& q) { return training_of(q).stages != Stages::kAll; }},
    {.id = "save-after-loading",
     .options = "--save --load --gpus --parallel",
     .message =
         "save: on several GPUs the stages of a job are modelled where they begin with --load host or, of a base "
         "in {--quantize}, under DDP",
     .accepted = "--load host, or --gpus 1, or no --save",
     .broken = [](const RuleQuestion& q) { return is_parallel(q) && !begins_with_loading(q); },
     .code = ErrorCode::kUnsupported},
    {.id = "save-full-or-sharded",
     .options = "--save --parallel",
     .message = "save {--save}: full and sharded state dicts are FSDP's",
     .accepted = "--parallel fsdp1, fsdp2, or --save checkpoint",
     .broken = [](const RuleQuestion& q) { return saves_shards(q) && !is_sharded(q); }},
    {.id = "save-of-shards",
     .options = "--save --parallel",
     .message = "save {--save}: of a model that FSDP shards it is modelled as a full or a sharded state dict",
     .accepted = "--save full, sharded",
     .broken = [](const RuleQuestion& q) { return is_sharded(q) && !saves_shards(q); },
     .code = ErrorCode::kUnsupported},
    {.id = "save-merge-one-gpu",
     .options = "--save --gpus --parallel",
     .message = "save merge: under {--parallel} no card has the whole weights into which adapters are merged",
     .accepted = "--parallel ddp, --gpus 1, or --save checkpoint",
     .broken = [](const RuleQuestion& q) { return is_parallel(q) && merges(q) && !is_ddp(q); },
     .code = ErrorCode::kUnsupported},
    {.id = "save-of-trainers",
     .options = "--save --vllm",
     .message = "save: what vLLM holds beside the model when {--loop} ends is not modelled",
     .accepted = "no --vllm",
     .broken = [](const RuleQuestion& q) { return q.run.uses_vllm(); },
     .code = ErrorCode::kUnsupported},
    {.id = "save-merge-needs-adapters",
     .options = "--save --lora",
     .message = "save {--save}: there are no adapters to merge",
     .accepted = "--lora R, or --save checkpoint",
     .broken = [](const RuleQuestion& q) { return training_of(q).saving == ModelSaving::kMerge && !has_adapters(q); }},
    {.id = "save-transformers-model",
     .options = "--save --model",
     .message = "save: only models of transformers that have a family here are saved by save_pretrained",
     .accepted = "no --save",
     .broken = is_outside_transformers},
};

constexpr Rule kStages[] = {
    {.id = "stages-after-loading",
     .options = "--stages --load --gpus --parallel",
     .message = "stages: on several GPUs those of a job are modelled where they begin with --load host or, of a packed "
                "base, under DDP",
     .accepted = "--load host, or --gpus 1, or no --stages",
     .broken = [](const RuleQuestion& q) { return is_parallel(q) && !begins_with_loading(q); },
     .code = ErrorCode::kUnsupported},
};

constexpr RuleGroup kGroups[] = {
    {.title = "Loading", .concerns = is_asked_to_load, .rules = kLoading},
    {.title = "Saving", .concerns = saves, .rules = kSaving},
    {.title = "Stages", .concerns = counts_all_stages, .rules = kStages},
};

}  // namespace

std::span<const RuleGroup> rules_of_stages() { return kGroups; }

}  // namespace memcalc
