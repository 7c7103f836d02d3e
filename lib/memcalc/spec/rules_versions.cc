// What goes with the versions of the frameworks. Covered by tests/unit/rules_versions_test.cc.
#include <string>

#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/rule_tables.h"
#include "memcalc/spec/rule_words.h"

namespace memcalc {
namespace {

const Behaviors& behaviors(const RuleQuestion& q) { return q.run.profile.behaviors; }

/// transformers before 5.0.
bool loops_over_experts(const RuleQuestion& q) { return behaviors(q).experts == ExpertForm::kLoop; }
bool is_deepseek(const RuleQuestion& q) { return is_family<DeepseekV2Spec>(q) || is_family<DeepseekV3Spec>(q); }

std::string asked_transformers(const RuleQuestion& q) {
  return text_of(q.run.profile.version(Software::kTransformers));
}

bool differs_in(const RuleQuestion& q, Software of) { return q.run.profile.version(of) != Profile{}.version(of); }

constexpr Rule kModels[] = {
    {.id = "attention-of-version",
     .options = "--attn --model --transformers",
     .message = "attention {--attn}: {family} has eager attention alone in transformers {}",
     .accepted = "--attn eager, or another --transformers",
     .broken =
         [](const RuleQuestion& q) {
           return q.run.attention != Attention::kEager && is_eager_in(q.model, behaviors(q));
         },
     .detail = asked_transformers},
    {.id = "experts-of-version",
     .options = "--transformers --model",
     .message = "transformers {}: its loop over the experts of {family} is not modelled",
     .accepted = "--transformers 5.0.0 or later",
     .broken =
         [](const RuleQuestion& q) { return loops_over_experts(q) && (is_deepseek(q) || is_family<GptOssSpec>(q)); },
     .detail = asked_transformers,
     .code = ErrorCode::kUnsupported},
    {.id = "expert-parallel-of-version",
     .options = "--transformers --ep --tp",
     .message = "transformers {}: experts in modules of their own are not shared out among GPUs here",
     .accepted = "--transformers 5.0.0 or later",
     .broken =
         [](const RuleQuestion& q) {
           const bool is_mixture = is_family<MixtralSpec>(q) || is_family<Qwen3MoeSpec>(q);
           return loops_over_experts(q) && is_mixture && (q.parallel.expert > 1 || q.parallel.tensor > 1);
         },
     .detail = asked_transformers,
     .code = ErrorCode::kUnsupported},
    {.id = "reentrant-position-bias",
     .options = "--checkpointing --transformers --model",
     .message = "transformers {}: T5's layers share a position bias, and reentrant checkpoints of such layers are not "
                "modelled",
     .accepted = "--checkpointing none, or --transformers 5.0.0 or later",
     .broken =
         [](const RuleQuestion& q) {
           return is_family<T5Spec>(q) && checkpoints(q) && behaviors(q).reentrant_checkpoints;
         },
     .detail = asked_transformers,
     .code = ErrorCode::kUnsupported},
    {.id = "compile-of-version",
     .options = "--compile --transformers",
     .message = "--compile: what torch.compile traces under transformers {} is not modelled",
     .accepted = "--transformers 5.0.0 or later",
     .broken = [](const RuleQuestion& q) { return q.run.compiles() && behaviors(q).masks_by_vmap; },
     .detail = asked_transformers,
     .code = ErrorCode::kUnsupported},
    {.id = "loading-of-version",
     .options = "--load --transformers",
     .message = "--load: how transformers {} reads a checkpoint is not modelled",
     .accepted = "--load config, or --transformers 5.0.0 or later",
     .broken =
         [](const RuleQuestion& q) {
           return trains(q) && behaviors(q).loads_in_float32 && training_of(q).loading != ModelLoading::kConfig;
         },
     .detail = asked_transformers,
     .code = ErrorCode::kUnsupported},
};

constexpr Rule kPrograms[] = {
    {.id = "version-of-program",
     .options = "--transformers --model",
     .message = "{model}: a recorded program is one version's model, and it was not recorded under transformers {}",
     .accepted = "no --transformers, or a program that was recorded under it (memcalc.record)",
     .broken = [](const RuleQuestion& q) { return is_program(q.model) && differs_in(q, Software::kTransformers); },
     .detail = asked_transformers},
};

constexpr RuleGroup kGroups[] = {
    {.title = "Versions: transformers' models", .concerns = [](const RuleQuestion&) { return true; }, .rules = kModels},
    {.title = "Versions: recorded programs", .concerns = [](const RuleQuestion&) { return true; }, .rules = kPrograms},
};

}  // namespace

std::span<const RuleGroup> rules_of_versions() { return kGroups; }

}  // namespace memcalc
