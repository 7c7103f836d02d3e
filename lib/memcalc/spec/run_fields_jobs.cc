// The rows of what a job is beside its steps: the data of trainers, their models, evaluation, loading and saving.
#include "memcalc/spec/router_loss.h"
#include "memcalc/spec/run_field_access.h"

namespace memcalc {
namespace {

using fields::row, fields::put, fields::take, fields::take_but;
using R = RunOptions;
using N = Training;
using G = FieldGroup;
using K = FieldType;

bool trains(const RunRecord& r) { return r.run.trains(); }
bool has_lengths(const RunRecord& r) { return r.run.trains() && r.run.training().lengths.has_value(); }
bool in_trainer(const RunRecord& r) { return r.run.uses_trainer(); }
bool evaluates(const RunRecord& r) { return r.run.trains() && r.run.training().evaluation.has_value(); }
bool on_answers(const RunRecord& r) { return r.run.trains_on_answers(); }
bool of_sft(const RunRecord& r) { return r.run.trains() && r.run.training().loop == Loop::kTrlSft; }
bool of_kto(const RunRecord& r) { return r.run.trains() && r.run.training().loop == Loop::kTrlKto; }
bool compares_answers(const RunRecord& r) {
  return r.run.trains() && (r.run.training().loop == Loop::kTrlDpo || r.run.training().loop == Loop::kTrlKto);
}
bool has_answers(const RunRecord& r) { return on_answers(r) || of_sft(r); }
bool in_trl(const RunRecord& r) { return r.run.uses_trl(); }
bool returns_routers(const RunRecord& r) {
  if (!r.run.trains() || r.run.training().loop != Loop::kTrainer || !returns_router_logits(r.model)) return false;
  const std::optional<Evaluation>& evaluation = r.run.training().evaluation;
  return !(evaluation && evaluation->keeps_logits) && r.run.profile.behaviors.experts != ExpertForm::kLoop;
}
bool generates(const RunRecord& r) { return r.run.generates(); }
bool of_grpo(const RunRecord& r) { return r.run.trains() && r.run.training().loop == Loop::kTrlGrpo; }
bool scores(const RunRecord& r) { return of_grpo(r) || (r.run.trains() && r.run.training().loop == Loop::kTrlRloo); }
bool corrects_vllm(const RunRecord& r) { return of_grpo(r) && r.run.uses_vllm(); }
bool has_vllm(const RunRecord& r) { return r.run.shares_card_with_vllm(); }
bool packs(const RunRecord& r) { return has_lengths(r) && r.run.training().loop == Loop::kTrlSft; }
bool embeds(const RunRecord& r) { return r.run.trains() && r.run.training().loop == Loop::kSentenceTransformer; }
bool caches_embeddings(const RunRecord& r) {
  return embeds(r) && r.run.training().sentences.loss == ContrastiveLoss::kCachedMnrl;
}

// A packed base has only this way.
std::optional<FieldValue> take_loading(const RunRecord& r) {
  const bool is_quantized = r.run.fine_tuning.quantization != Quantization::kNone;
  return is_quantized ? std::nullopt : take_but<&N::loading, ModelLoading::kConfig>(r);
}

template <auto kMember>
std::optional<FieldValue> take_of_evaluation(const RunRecord& r) {
  if (!evaluates(r)) return std::nullopt;
  return FieldValue{(*r.run.training().evaluation).*kMember};
}

template <auto kMember>
std::optional<FieldValue> take_of_lengths(const RunRecord& r) {
  if (!has_lengths(r)) return std::nullopt;
  return fields::read((*r.run.training().lengths).*kMember);
}

template <auto kMember>
std::optional<FieldValue> take_of_sentences(const RunRecord& r) {
  if (!embeds(r)) return std::nullopt;
  return fields::read(r.run.training().sentences.*kMember);
}

template <auto kMember>
std::optional<FieldValue> take_of_vllm(const RunRecord& r) {
  if (!has_vllm(r)) return std::nullopt;
  return fields::read(r.run.training().vllm.*kMember);
}

template <auto kMember, std::int32_t kDefault>
std::optional<FieldValue> take_of_completions(const RunRecord& r) {
  if (!scores(r) || r.run.training().*kMember == kDefault) return std::nullopt;
  return FieldValue{std::int64_t{r.run.training().*kMember}};
}

constexpr std::string_view kScores = "trainers that score completions (--loop trl-grpo, trl-rloo)";
constexpr std::string_view kGrpo = "TRL's GRPOTrainer (--loop trl-grpo)";
constexpr std::string_view kColocated = "vLLM on the same card (--vllm colocate)";
constexpr std::string_view kTraining = "training, not to --infer";
constexpr std::string_view kTrainerLoop = "the loops of the Trainer (every --loop but bare)";
constexpr std::string_view kRealLengths = "batches of real lengths (--lengths FILE)";
constexpr std::string_view kPacks = "TRL's SFTTrainer on real lengths (--loop trl-sft --lengths FILE)";
constexpr std::string_view kBiEncoder = "bi-encoders (--loop sentence-transformer)";
constexpr std::string_view kEvaluation = "evaluation (--eval-bs N)";

const Field kFields[] = {
    row("--completion", "completion_length", G::kJob, K::kWhole, "N",
        "TRL: tokens of --seq that answer [half; trl-sft: all]",
        {.unit = "tokens",
         .set = put<&R::completion_length>,
         .get = [](const RunRecord& r) -> std::optional<FieldValue> {
           return of_sft(r) ? take_but<&N::completion_length, std::int64_t{0}>(r) : take<&N::completion_length>(r);
         },
         .exists = has_answers,
         .belongs_to = "TRL's trainers on answers (--loop trl-sft, trl-dpo, trl-grpo)"}),
    row("--sft-loss", "sft_loss", G::kJob, K::kName, "L", "SFTConfig.loss_type: nll or dft [nll]",
        {.names = kSftLossNames,
         .set = put<&R::sft_loss>,
         .get = take_but<&N::sft_loss, SftLoss::kNll>,
         .exists = of_sft,
         .belongs_to = "TRL's SFTTrainer (--loop trl-sft)"}),
    row("--kto-loss", "kto_loss", G::kJob, K::kName, "L", "KTOConfig.loss_type: kto or apo_zero_unpaired [kto]",
        {.names = kKtoLossNames,
         .set = put<&R::kto_loss>,
         .get = take_but<&N::kto_loss, KtoLoss::kKto>,
         .exists = of_kto,
         .belongs_to = "TRL's KTOTrainer (--loop trl-kto)"}),
    row("--whole-logits", "whole_logits", G::kJob, K::kFlag, "",
        "DPO, KTO: float32 logits of all tokens (LLaMA-Factory)",
        {.set = put<&R::whole_logits>,
         .get = take<&N::whole_logits>,
         .exists = compares_answers,
         .belongs_to = "TRL's DPOTrainer and KTOTrainer (--loop trl-dpo, trl-kto)"}),
    row("--router-loss", "router_loss", G::kJob, K::kFlag, "", "the Trainer on mixtures: config's output_router_logits",
        {.set = put<&R::router_loss>,
         .get = [](const RunRecord& r) -> std::optional<FieldValue> {
           return returns_routers(r) && r.run.training().balances_experts ? std::optional<FieldValue>(true)
                                                                          : std::nullopt;
         },
         .exists = returns_routers,
         .belongs_to =
             "mixtures of experts whose config has output_router_logits, in the Trainer without --eval-logits"}),
    row("--no-router-loss", "no_router_loss", G::kJob, K::kFlag, "",
        "TRL on mixtures of experts: router_aux_loss_coef is 0",
        {.set = put<&R::no_router_loss>,
         .get = [](const RunRecord& r) -> std::optional<FieldValue> {
           if (!in_trl(r) || !returns_router_logits(r.model)) return std::nullopt;
           return !r.run.training().balances_experts;
         },
         .exists = in_trl,
         .belongs_to = "TRL's trainers (--loop trl-sft, trl-dpo, trl-grpo)"}),
    row("--ref-model", "ref_model", G::kJob, K::kName, "R", "TRL: none, own, adapters or precomputed [TRL's own]",
        {.names = kReferenceNames,
         .set = put<&R::reference>,
         .get = take<&N::reference>,
         .exists = on_answers,
         .belongs_to = "TRL's trainers on answers (--loop trl-dpo, trl-grpo)"}),
    row("--steps-per-generation", "steps_per_generation", G::kJob, K::kWhole, "N",
        "micro-batches that are generated at once [--accum]",
        {.unit = "micro-batches",
         .most = 4096,
         .set = put<&R::steps_per_generation>,
         .get = take_of_completions<&N::steps_per_generation, 0>,
         .exists = scores,
         .belongs_to = kScores}),
    row("--iterations", "num_iterations", G::kJob, K::kWhole, "N", "how often a completion is trained on (mu) [1]",
        {.unit = "times",
         .most = 4096,
         .set = put<&R::iterations>,
         .get = take_of_completions<&N::iterations, 1>,
         .exists = scores,
         .belongs_to = kScores}),
    row("--generations", "num_generations", G::kJob, K::kWhole, "N", "completions of each prompt [GRPO 8, RLOO 2]",
        {.unit = "completions",
         .most = 4096,
         .set = put<&R::generations>,
         .get = take_of_completions<&N::generations, 0>,
         .exists = scores,
         .belongs_to = kScores}),
    row("--grpo-loss", "grpo_loss", G::kJob, K::kName, "L", "GRPOConfig.loss_type [dapo]",
        {.names = kGrpoLossNames,
         .set = put<&R::grpo_loss>,
         .get = take_but<&N::grpo_loss, GrpoLoss::kDapo>,
         .exists = of_grpo,
         .belongs_to = kGrpo}),
    row("--float32-head", "float32_head", G::kJob, K::kFlag, "", "GRPO: cast_lm_head_to_fp32",
        {.set = put<&R::float32_head>,
         .get = take_but<&N::float32_head, false>,
         .exists = of_grpo,
         .belongs_to = kGrpo}),
    row("--importance-level", "importance_level", G::kJob, K::kName, "L", "ratios of a token or a sequence [token]",
        {.names = kImportanceLevelNames,
         .set = put<&R::importance_level>,
         .get = take_but<&N::importance_level, ImportanceLevel::kToken>,
         .exists = of_grpo,
         .belongs_to = kGrpo}),
    row("--vllm-correction", "vllm_correction", G::kJob, K::kName, "M",
        "vllm_importance_sampling_mode, or none [sequence_mask]",
        {.names = kVllmCorrectionNames,
         .set = put<&R::vllm_correction>,
         .get = [](const RunRecord& r) -> std::optional<FieldValue> {
           if (!corrects_vllm(r)) return std::nullopt;
           return std::string(name_of(r.run.training().vllm.correction));
         },
         .exists = corrects_vllm,
         .belongs_to = "GRPO with vLLM (--loop trl-grpo --vllm colocate, server)"}),
    row("--label-smoothing", "label_smoothing", G::kJob, K::kFlag, "",
        "label_smoothing_factor above 0: a loss of all logits",
        {.set = put<&R::label_smoothing>,
         .get = [](const RunRecord& r) -> std::
                                           optional<FieldValue> {
                                             if (!in_trainer(r) || !r.run.training().smooths_labels)
                                               return std::nullopt;
                                             return true;
                                           },
         .exists = in_trainer,
         .belongs_to = kTrainerLoop}),
    row("--vllm", "vllm", G::kJob, K::kName, "V", "vLLM generates: none, colocate, server [none]",
        {.names = kVllmModeNames,
         .set = put<&R::vllm>,
         .get = [](const RunRecord& r) -> std::
                                           optional<FieldValue> {
                                             if (!r.run.uses_vllm()) return std::nullopt;
                                             return std::string(name_of(r.run.training().vllm.mode));
                                           },
         .exists = generates,
         .belongs_to = "trainers that generate (--loop trl-grpo, trl-rloo)"}),
    row("--vllm-utilization", "vllm_utilization", G::kJob, K::kNumber, "U",
        "share of the card's memory that vLLM asks for [0.3]",
        {.least = 0.01,
         .most = 1,
         .set = put<&R::vllm_utilization>,
         .get = take_of_vllm<&Vllm::utilization>,
         .exists = has_vllm,
         .belongs_to = kColocated}),
    row("--vllm-sleep", "vllm_sleep", G::kJob, K::kFlag, "", "vLLM gives its memory back while the model trains",
        {.set = put<&R::vllm_sleep>, .get = take_of_vllm<&Vllm::sleeps>, .exists = has_vllm, .belongs_to = kColocated}),
    row("--vllm-max-length", "vllm_max_length", G::kJob, K::kWhole, "N",
        "longest sequence that vLLM takes [model's context]",
        {.unit = "tokens",
         .set = put<&R::vllm_max_length>,
         .get = [](const RunRecord& r) -> std::
                                           optional<FieldValue> {
                                             if (!has_vllm(r) || r.run.training().vllm.max_length == 0)
                                               return std::nullopt;
                                             return r.run.training().vllm.max_length;
                                           },
         .exists = has_vllm,
         .belongs_to = kColocated}),
    row("--lengths", "lengths", G::kJob, K::kText, "FILE", "tokens of each sample, or lognormal:MEDIAN,SIGMA,MAX",
        {.set = put<&R::lengths>,
         .get = [](const RunRecord& r) -> std::
                                           optional<FieldValue> {
                                             if (!has_lengths(r)) return std::nullopt;
                                             return r.run.training().lengths->argument;
                                           },
         .exists = in_trainer,
         .belongs_to = kTrainerLoop}),
    row("--steps", "steps", G::kJob, K::kWhole, "N", "optimizer steps of --lengths [one epoch]",
        {.unit = "steps",
         .most = 1'000'000,
         .set = put<&R::steps>,
         .get = [](const RunRecord& r) -> std::optional<FieldValue> {
           if (!has_lengths(r) || r.run.training().lengths->steps == 0) return std::nullopt;
           return r.run.training().lengths->steps;
         },
         .exists = has_lengths,
         .belongs_to = kRealLengths}),
    row("--packing", "packing", G::kJob, K::kName, "P", "bfd, bfd_split or wrapped: rows of --seq tokens [none]",
        {.names = kPackingNames,
         .set = put<&R::packing>,
         .get = take_of_lengths<&DataLengths::packing>,
         .exists = packs,
         .belongs_to = kPacks}),
    row("--padding-free", "padding_free", G::kJob, K::kFlag, "",
        "all sequences of a batch in one row [as --packing says]",
        {.set = put<&R::padding_free>,
         .get = take_of_lengths<&DataLengths::padding_free>,
         .exists = packs,
         .belongs_to = kPacks}),
    row("--group-by-length", "group_by_length", G::kJob, K::kFlag, "", "samples of about one length stand together",
        {.set = put<&R::group_by_length>,
         .get = take_of_lengths<&DataLengths::grouped>,
         .exists = has_lengths,
         .belongs_to = kRealLengths}),
    row("--pad-to-multiple", "pad_to_multiple_of", G::kJob, K::kWhole, "N", "the collator's pad_to_multiple_of [1]",
        {.unit = "tokens",
         .most = 4096,
         .set = put<&R::pad_to_multiple_of>,
         .get = take_of_lengths<&DataLengths::pad_to_multiple_of>,
         .exists = has_lengths,
         .belongs_to = kRealLengths}),
    row("--seed", "seed", G::kJob, K::kWhole, "N", "of the order in which samples come [42]",
        {.least = 0,
         .most = 4294967295,
         .set = put<&R::seed>,
         .get = take_of_lengths<&DataLengths::seed>,
         .exists = has_lengths,
         .belongs_to = kRealLengths}),
    row("--contrastive-loss", "contrastive_loss", G::kJob, K::kName, "L",
        "mnrl or cached-mnrl (MultipleNegativesRanking) [mnrl]",
        {.names = kContrastiveLossNames,
         .set = put<&R::contrastive_loss>,
         .get = take_of_sentences<&SentencePairs::loss>,
         .exists = embeds,
         .belongs_to = kBiEncoder}),
    row("--mini-batch", "mini_batch_size", G::kJob, K::kWhole, "N", "cached-mnrl: texts embedded at a time [32]",
        {.unit = "sequences",
         .set = put<&R::mini_batch_size>,
         .get = take_of_sentences<&SentencePairs::mini_batch_size>,
         .exists = caches_embeddings,
         .belongs_to = "cached losses (--contrastive-loss cached-mnrl)"}),
    row("--hard-negatives", "hard_negatives", G::kJob, K::kWhole, "N", "of each anchor, beside the positive [0]",
        {.unit = "sequences",
         .least = 0,
         .most = 64,
         .set = put<&R::hard_negatives>,
         .get = take_of_sentences<&SentencePairs::hard_negatives>,
         .exists = embeds,
         .belongs_to = kBiEncoder}),
    row("--stages", "stages", G::kJob, K::kName, "S", "peak of: train, or all, from loading to saving [train]",
        {.names = kStagesNames,
         .set = put<&R::stages>,
         .get = take<&N::stages>,
         .exists = trains,
         .belongs_to = kTraining}),
    row("--load", "load", G::kJob, K::kName, "L", "config (on the card), device-map, host, rank0 [by mode]",
        {.names = kLoadingNames,
         .set = put<&R::loading>,
         .get = take_loading,
         .exists = trains,
         .belongs_to = kTraining}),
    row("--save", "save", G::kJob, K::kName, "S", "at the end: checkpoint, merge, FSDP2: full, sharded",
        {.names = kSavingNames,
         .set = put<&R::saving>,
         .get = take_but<&N::saving, ModelSaving::kNone>,
         .exists = trains,
         .belongs_to = kTraining}),
    row("--eval-bs", "eval_batch_size", G::kJob, K::kWhole, "N", "the Trainer evaluates, N samples a batch [does not]",
        {.unit = "samples",
         .set = put<&R::eval_batch_size>,
         .get = take_of_evaluation<&Evaluation::batch_size>,
         .exists = in_trainer,
         .belongs_to = kTrainerLoop}),
    row("--eval-samples", "eval_samples", G::kJob, K::kWhole, "N", "samples of the evaluation set [4 batches]",
        {.unit = "samples",
         .most = 10'000'000,
         .set = put<&R::eval_samples>,
         .get = take_of_evaluation<&Evaluation::samples>,
         .exists = evaluates,
         .belongs_to = kEvaluation}),
    row("--eval-logits", "eval_logits", G::kJob, K::kFlag, "", "with compute_metrics: logits of the whole set stay",
        {.set = put<&R::eval_logits>,
         .get = take_of_evaluation<&Evaluation::keeps_logits>,
         .exists = evaluates,
         .belongs_to = kEvaluation}),
    row("--eval-accum", "eval_accumulation_steps", G::kJob, K::kWhole, "N",
        "batches after which they are moved to the host [all]",
        {.unit = "batches",
         .least = 0,
         .set = put<&R::eval_accumulation>,
         .get = take_of_evaluation<&Evaluation::move_to_host>,
         .exists = evaluates,
         .belongs_to = kEvaluation}),
    row("--eval-generate", "eval_generate", G::kJob, K::kWhole, "N", "predict_with_generate: N tokens a sample [none]",
        {.unit = "tokens",
         .least = 0,
         .set = put<&R::eval_new_tokens>,
         .get = take_of_evaluation<&Evaluation::new_tokens>,
         .exists = evaluates,
         .belongs_to = kEvaluation}),
    row("--no-eval-labels", "no_eval_labels", G::kJob, K::kFlag, "", "an evaluation that generates computes no loss",
        {.set = put<&R::no_eval_labels>,
         .get = [](const RunRecord& r) -> std::
                                           optional<FieldValue> {
                                             if (!evaluates(r) || r.run.training().evaluation->new_tokens == 0)
                                               return std::nullopt;
                                             return !r.run.training().evaluation->has_labels;
                                           },
         .exists = evaluates,
         .belongs_to = kEvaluation}),
    row("--eval-beams", "eval_beams", G::kJob, K::kWhole, "K", "beams of that generation [1]",
        {.unit = "beams",
         .set = put<&R::eval_beams>,
         .get = take_of_evaluation<&Evaluation::beams>,
         .exists = evaluates,
         .belongs_to = kEvaluation}),
};

}  // namespace

std::span<const Field> fields_of_jobs() { return kFields; }

}  // namespace memcalc
