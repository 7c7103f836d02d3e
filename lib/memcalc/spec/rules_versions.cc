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

std::string asked_transformers(const RuleQuestion& q) {
  return text_of(q.run.profile.version(Software::kTransformers));
}

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
         [](const RuleQuestion& q) {
           return has_experts(q.model) && !has(q, &Family::loops_over_experts) && loops_over_experts(q);
         },
     .detail = asked_transformers,
     .code = ErrorCode::kUnsupported},
    {.id = "deepseek-of-version",
     .options = "--transformers --model",
     .message = "transformers {}: {family}'s attention rotates and caches otherwise before 5.15, which is not modelled",
     .accepted = "--transformers 5.15 or later",
     .broken =
         [](const RuleQuestion& q) {
           return has(q, &Family::has_latent_attention) && !loops_over_experts(q) &&
                  !behaviors(q).deepseek_caches_latent;
         },
     .detail = asked_transformers,
     .code = ErrorCode::kUnsupported},
    {.id = "expert-parallel-of-version",
     .options = "--transformers --ep --tp",
     .message = "transformers {}: experts in modules of their own are not shared out among GPUs here",
     .accepted = "--transformers 5.0.0 or later",
     .broken =
         [](const RuleQuestion& q) {
           return (q.parallel.expert > 1 || q.parallel.tensor > 1) && has(q, &Family::loops_over_experts) &&
                  loops_over_experts(q);
         },
     .detail = asked_transformers,
     .code = ErrorCode::kUnsupported},
    {.id = "reentrant-position-bias",
     .options = "--checkpointing --reentrant --transformers --model",
     .message = "transformers {}: T5's layers share a position bias, and reentrant checkpoints of such layers are not "
                "modelled",
     .accepted = "--checkpointing none, --no-reentrant, or --transformers 5.0.0 or later",
     .broken =
         [](const RuleQuestion& q) {
           return has(q, &Family::shares_position_bias) && !q.run.fine_tuning.prepares_for_kbit &&
                  q.run.checkpoints_reentrantly();
         },
     .detail = asked_transformers,
     .code = ErrorCode::kUnsupported},
    {.id = "reentrant-keyword",  // tiny models on a processor, 4.57.6: RuntimeError in loss.backward()
     .options = "--checkpointing --reentrant --transformers --model",
     .message = "transformers {}: Whisper's decoder layers get encoder_hidden_states by keyword, so that reentrant "
                "checkpoints go through the encoder's graph once a layer, and PyTorch stops at the second",
     .accepted = "--checkpointing none, --no-reentrant, or --transformers 5.0.0 or later",
     .broken =
         [](const RuleQuestion& q) {
           return is_speech(q.model) && behaviors(q).reentrant_checkpoints && q.run.checkpoints_reentrantly();
         },
     .detail = asked_transformers,
     .code = ErrorCode::kUnsupported},
    {.id = "compile-of-version",
     .options = "--compile --transformers",
     .message = "--compile: what torch.compile traces under transformers {} is not modelled",
     .accepted = "--transformers 5.0.0 or later",
     .broken = [](const RuleQuestion& q) { return q.run.compiles() && !behaviors(q).compile_is_read; },
     .detail = asked_transformers,
     .code = ErrorCode::kUnsupported},
    {.id = "checkpointing-every-of-version",
     .options = "--checkpointing --transformers",
     .message = "checkpointing {--checkpointing}: transformers {} has no every_n_layers",
     .accepted = "--checkpointing full, or --transformers 5.16.0 or later",
     .broken =
         [](const RuleQuestion& q) {
           return trains(q) && training_of(q).checkpoint_every > 1 && runs_transformers(q.model) &&
                  !behaviors(q).checkpoints_every_nth;
         },
     .detail = asked_transformers},
    {.id = "loading-of-version",
     .options = "--load --stages --transformers",
     .message = "--load, --stages: how transformers {} reads a checkpoint is not modelled",
     .accepted = "--load config, --stages train, or --transformers 5.0.0 or later",
     .broken =
         [](const RuleQuestion& q) {
           if (!trains(q)) return false;
           const bool packs = q.run.fine_tuning.quantization != Quantization::kNone;  // which has no other way
           const bool reads =
               packs ? training_of(q).stages == Stages::kAll : training_of(q).loading != ModelLoading::kConfig;
           return reads && !behaviors(q).loads_by_conversion;
         },
     .detail = asked_transformers,
     .code = ErrorCode::kUnsupported},
};

constexpr Rule kWrappers[] = {
    {.id = "fsdp2-upcast-of-version",
     .options = "--accelerate --parallel --weights-dtype",
     .message =
         "accelerate {}: it turns the shards of 16-bit weights into float32 after FSDP2 has made them, which is not "
         "modelled",
     .accepted = "--weights-dtype fp32, or --accelerate 1.13.0 or later",
     .broken =
         [](const RuleQuestion& q) {
           const bool shards = q.run.uses_trainer() && q.parallel.data_parallel == DataParallel::kFsdp2;
           return shards && is_autocast(q.run.precision) && q.run.weights_dtype && is_half(*q.run.weights_dtype) &&
                  behaviors(q).fsdp2_upcasts == Fsdp2Upcast::kAllShards;
         },
     .detail = [](const RuleQuestion& q) { return text_of(q.run.profile.version(Software::kAccelerate)); },
     .code = ErrorCode::kUnsupported},
};

std::string asked_trl(const RuleQuestion& q) { return text_of(q.run.profile.version(Software::kTrl)); }

/// Of TRL's trainers on given answers, before 1.14.
bool holds_logits_of_answers(const RuleQuestion& q) {
  const Loop loop = training_of(q).loop;
  const PreferenceScores scores = behaviors(q).preference_scores;
  if (training_of(q).whole_logits) return false;
  const bool of_pairs = loop == Loop::kTrlDpo || loop == Loop::kTrlOrpo;
  return (of_pairs && scores == PreferenceScores::kLogitsOfPairs) ||
         ((of_pairs || loop == Loop::kTrlKto) && scores == PreferenceScores::kLogits);
}

constexpr Rule kTrainers[] = {
    {.id = "sft-chunks-of-version",
     .options = "--trl --loop --no-router-loss --parallel",
     .message = "{--loop}: TRL {} computes the loss 256 tokens at a time; with a router's loss, and under FSDP or "
                "DeepSpeed, that is not modelled",
     .accepted = "--trl 1.15.0 or later, or 1.6.0 or earlier; --no-router-loss; --parallel ddp",
     .broken =
         [](const RuleQuestion& q) {
           const SftLossForm form = behaviors(q).sft_loss;
           const bool in_chunks = form == SftLossForm::kCheckpointedChunks || form == SftLossForm::kSortedChunks ||
                                  form == SftLossForm::kChunksWithoutFloat32Copies;
           const bool alone =
               q.parallel.data_parallel == DataParallel::kNone || q.parallel.data_parallel == DataParallel::kDdp;
           return trains(q) && training_of(q).loop == Loop::kTrlSft && in_chunks &&
                  (training_of(q).balances_experts || !alone);
         },
     .detail = asked_trl,
     .code = ErrorCode::kUnsupported},
    {.id = "trainer-of-version",
     .options = "--trl --loop --whole-logits",
     .message =
         "{--loop}: it was read at TRL 1.15 and 1.16, not at {}; SFT and reward models were at 1.1 to 1.14, too, "
         "DPO and ORPO at 1.6 to 1.13 and KTO at 1.9 to 1.13",
     .accepted = "--trl 1.15.0 or later; --loop trl-sft",
     .broken =
         [](const RuleQuestion& q) {
           if (!q.run.uses_trl() || training_of(q).loop == Loop::kTrlSft) return false;
           if (!behaviors(q).trl_trainers_are_read) return true;
           if (training_of(q).loop == Loop::kTrlReward) return false;
           if (holds_logits_of_answers(q)) return false;
           // Where the release has no add_fused_lm_head(), which SFT's loss tells, the others hold their logits.
           return behaviors(q).sft_loss != SftLossForm::kFusedHead;
         },
     .detail = asked_trl,
     .code = ErrorCode::kUnsupported},
    {.id = "preferences-of-version",
     .options = "--trl --loop --precision --liger --no-router-loss --compile --parallel",
     .message =
         "{--loop}: TRL {} holds the logits of every token; that is modelled in float32 or under autocast, on one "
         "GPU or under DDP, without Liger's loss, a router's or torch.compile",
     .accepted = "--trl 1.15.0 or later; --precision amp-bf16; --no-router-loss; --parallel ddp",
     .broken =
         [](const RuleQuestion& q) {
           if (!q.run.uses_trl() || !holds_logits_of_answers(q)) return false;
           const bool alone =
               q.parallel.data_parallel == DataParallel::kNone || q.parallel.data_parallel == DataParallel::kDdp;
           const bool in_half = q.run.precision == Precision::kBf16 || q.run.precision == Precision::kFp16;
           return training_of(q).balances_experts || q.run.fine_tuning.liger || q.run.compiles() || !alone || in_half;
         },
     .detail = asked_trl,
     .code = ErrorCode::kUnsupported},
};

constexpr RuleGroup kGroups[] = {
    {.title = "Versions: transformers' models", .concerns = [](const RuleQuestion&) { return true; }, .rules = kModels},
    {.title = "Versions: accelerate", .concerns = [](const RuleQuestion&) { return true; }, .rules = kWrappers},
    {.title = "Versions: TRL", .concerns = [](const RuleQuestion&) { return true; }, .rules = kTrainers},
};

}  // namespace

std::span<const RuleGroup> rules_of_versions() { return kGroups; }

}  // namespace memcalc
