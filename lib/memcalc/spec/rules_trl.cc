// What goes with TRL's trainers, and with evaluation in the Trainer. Covered by tests/unit/rules_trl_test.cc.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "memcalc/spec/parallel_names.h"
#include "memcalc/spec/rule_tables.h"
#include "memcalc/spec/rule_words.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

bool is_recorded(const RuleQuestion& q) { return is_program(q.model); }
/// nn.DataParallel.
bool is_one_process(const RuleQuestion& q) { return q.parallel.data_parallel == DataParallel::kDp; }
bool trains_on_given_answers(const RuleQuestion& q) {
  const Loop loop = training_of(q).loop;
  return loop == Loop::kTrlSft || loop == Loop::kTrlDpo || loop == Loop::kTrlKto || loop == Loop::kTrlOrpo ||
         loop == Loop::kTrlReward;
}
bool generates_itself(const RuleQuestion& q) { return q.run.generates() && !q.run.uses_vllm(); }
/// Of what changes Trainer.model.
bool is_modelled_in_parallel(const RuleQuestion& q) {
  if (is_megatron(q)) return false;
  switch (q.parallel.data_parallel) {
    case DataParallel::kDdp:
    case DataParallel::kDsZero1:
    case DataParallel::kDsZero2: return true;
    case DataParallel::kFsdp1:
    case DataParallel::kFsdp2:
    case DataParallel::kDsZero3: return trains_on_given_answers(q) || generates_itself(q);
    default: return false;
  }
}
/// Completions, of all processes together.
std::int64_t generated_at_once(const RuleQuestion& q) {
  return q.run.batch_size * training_of(q).generated_micro_batches() * std::max<std::int64_t>(1, q.parallel.gpus);
}
/// By TRL's RepeatSampler.
bool repeats_prompts(const RuleQuestion& q) { return q.run.generates() && training_of(q).loop != Loop::kTrlOnlineDpo; }
bool classifies_sequences(const RuleQuestion& q) { return q.run.task == Task::kSequenceClassification; }

constexpr Rule kTrl[] = {
    {.id = "trl-causal",
     .options = "--loop --task",
     .message = "{--loop}: it trains causal language models, not the task {--task}",
     .accepted = "--task causal, or --loop trainer",
     .broken = [](const RuleQuestion& q) { return !is_causal(q) && training_of(q).loop != Loop::kTrlReward; }},
    {.id = "trl-reward-scores",
     .options = "--loop --task",
     .message = "{--loop}: a reward model gives one number for a sequence, unlike the task {--task}",
     .accepted = "--task seqcls, or another loop",
     .broken =
         [](const RuleQuestion& q) { return training_of(q).loop == Loop::kTrlReward && !classifies_sequences(q); }},
    {.id = "trl-of-a-family",
     .options = "--loop --model",
     .message = "{--loop}: a recorded program has its loss inside, which TRL replaces; a family of memcalc is needed",
     .accepted = "--loop trainer, or a model that memcalc knows by its config.json",
     .broken = is_recorded},
    {.id = "trl-compile",
     .options = "--loop --compile",
     .message = "{--loop}: torch.compile around TRL's head is not modelled",
     .accepted = "no --compile",
     .broken = [](const RuleQuestion& q) { return q.run.compiles(); }},
    {.id = "trl-parallel",
     .options = "--loop --gpus --parallel",
     .message = "{--loop}: under {} it is not modelled",
     .accepted = "--parallel ddp, ds-zero1, ds-zero2; without vLLM fsdp1, fsdp2 and ds-zero3, too",
     .broken = [](const RuleQuestion& q) { return (is_parallel(q) || is_megatron(q)) && !is_modelled_in_parallel(q); },
     .detail =
         [](const RuleQuestion& q) {
           return std::string(is_megatron(q) ? "Megatron-LM" : name_of(q.parallel.data_parallel));
         }},
    {.id = "trl-reference-of-an-engine",
     .options = "--ref-model --parallel",
     .message = "reference: a copy of the model, which {--loop} makes, in DeepSpeed's engine is not modelled",
     .accepted = "--ref-model adapters, or --parallel ddp, fsdp1, fsdp2",
     .broken =
         [](const RuleQuestion& q) {
           return is_deepspeed(q) && training_of(q).reference == Reference::kModel &&
                  training_of(q).loop == Loop::kTrlOnlineDpo;
         }},
    {.id = "trl-padding",
     .options = "--loop --padding",
     .message = "{--loop}: batches whose sequences differ in length are not modelled",
     .accepted = "no --padding: every sequence of --seq tokens",
     .broken = [](const RuleQuestion& q) { return q.run.padding; }},
    {.id = "trl-completion",
     .options = "--completion --seq",
     .message = "completion: {} tokens of a sequence cannot be the answer, which leaves no prompt",
     .accepted = "--completion less than --seq",
     .broken = [](const RuleQuestion& q) { return training_of(q).completion_length >= q.run.sequence_length; },
     .detail = [](const RuleQuestion& q) { return fmt::format("{}", training_of(q).completion_length); }},
};

bool trains_by_sft(const RuleQuestion& q) { return trains(q) && training_of(q).loop == Loop::kTrlSft; }

constexpr Rule kSft[] = {
    {.id = "sft-completion-lengths",
     .options = "--completion --lengths",
     .message = "completion: of batches of different lengths the file says how much of each sample is the answer",
     .accepted = "--lengths with lines like 200/57 (prompt/answer), or one of --completion and --lengths",
     .broken =
         [](const RuleQuestion& q) {
           return training_of(q).completion_length > 0 && training_of(q).lengths.has_value();
         }},
    {.id = "sft-loss-version",
     .options = "--sft-loss --profile",
     .message = "sft loss: DFT of a TRL that holds the logits is not modelled",
     .accepted = "--sft-loss nll, or a profile with TRL 1.15 or later",
     .broken =
         [](const RuleQuestion& q) {
           return training_of(q).sft_loss == SftLoss::kDft &&
                  q.run.profile.behaviors.sft_loss != SftLossForm::kFusedHead;
         }},
};

constexpr Rule kAnswers[] = {
    {.id = "trl-reference-of-adapters",
     .options = "--ref-model --lora",
     .message = "reference: without adapters there is no model to go back to",
     .accepted = "--lora R, or --ref-model own",
     .broken =
         [](const RuleQuestion& q) { return training_of(q).reference == Reference::kAdapters && !has_adapters(q); }},
    {.id = "trl-reference-quantized",
     .options = "--ref-model --quantize",
     .message = "reference: a second model of packed weights is not modelled",
     .accepted = "--ref-model adapters, or no --quantize",
     .broken =
         [](const RuleQuestion& q) {
           return training_of(q).reference == Reference::kModel &&
                  q.run.fine_tuning.quantization != Quantization::kNone;
         }},
};

constexpr Rule kPairs[] = {
    {.id = "trl-pairs-reference",
     .options = "--ref-model --loop",
     .message = "{--loop}: it compares with a reference",
     .accepted = "--ref-model own, adapters, precomputed",
     .broken =
         [](const RuleQuestion& q) {
           return training_of(q).reference == Reference::kNone && training_of(q).loop != Loop::kTrlOrpo;
         }},
    {.id = "trl-orpo-reference",
     .options = "--ref-model --loop",
     .message = "{--loop}: it compares the two answers with each other, not with a reference",
     .accepted = "no --ref-model, or --loop trl-dpo",
     .broken =
         [](const RuleQuestion& q) {
           return training_of(q).loop == Loop::kTrlOrpo && training_of(q).reference != Reference::kNone;
         }},
    {.id = "trl-whole-logits",
     .options = "--whole-logits --ref-model --kto-loss --parallel",
     .message = "whole logits: LLaMA-Factory's trainers of DPO and KTO are modelled on one GPU and under DDP, with a "
                "reference that runs in each step, and KTO with its divergence",
     .accepted = "--ref-model own, adapters, --kto-loss kto, --parallel ddp, or no --whole-logits",
     .broken =
         [](const RuleQuestion& q) {
           const Training& training = training_of(q);
           if (!training.whole_logits) return false;
           const bool is_whole = !q.parallel.is_parallel() || q.parallel.data_parallel == DataParallel::kDdp;
           return training.reference == Reference::kPrecomputed || training.kto_loss != KtoLoss::kKto || !is_whole;
         }},
    {.id = "trl-kto-batch",
     .options = "--bs --loop",
     .message = "{--loop}: one sample has no other whose answer it could take",
     .accepted = "--bs 2 or more, or --kto-loss apo_zero_unpaired",
     .broken =
         [](const RuleQuestion& q) {
           const bool estimates_kl = training_of(q).kto_loss == KtoLoss::kKto;
           return !q.run.trains_on_pairs() && estimates_kl && !training_of(q).whole_logits && q.run.batch_size < 2;
         }},
};

constexpr Rule kGenerates[] = {
    {.id = "trl-generates-reference",
     .options = "--ref-model --loop",
     .message = "{--loop}: its completions are new in every step, so nothing of them can be computed before",
     .accepted = "--ref-model none, own, adapters",
     .broken = [](const RuleQuestion& q) { return training_of(q).reference == Reference::kPrecomputed; }},
    {.id = "trl-online-dpo-reference",
     .options = "--ref-model --loop",
     .message = "{--loop}: it compares with a reference",
     .accepted = "--ref-model own, adapters",
     .broken =
         [](const RuleQuestion& q) {
           return training_of(q).loop == Loop::kTrlOnlineDpo && training_of(q).reference == Reference::kNone;
         }},
    {.id = "trl-adapters-generate",
     .options = "--loop --lora --parallel",
     .message = "{--loop}: generate() of a model with adapters goes past the module that FSDP2 shards, and fails",
     .accepted = "--parallel ddp, ds-zero1 to ds-zero3, or no --lora",
     .broken =
         [](const RuleQuestion& q) {
           return q.parallel.data_parallel == DataParallel::kFsdp2 && has_adapters(q) && !q.run.uses_vllm();
         }},
    {.id = "trl-adapters-generate-fsdp1",
     .options = "--loop --lora --parallel --precision",
     .message = "{--loop}: generate() of a model with adapters runs outside of autocast, where FSDP1 gives lora_A a "
                "16-bit weight and peft a float32 input, and fails",
     .accepted = "--parallel ddp, ds-zero1 to ds-zero3, or no --lora",
     .broken =
         [](const RuleQuestion& q) {
           const bool mixes = is_autocast(q.run.precision);
           return q.parallel.data_parallel == DataParallel::kFsdp1 && has_adapters(q) && !q.run.uses_vllm() && mixes;
         }},
    {.id = "trl-generates-evaluation",
     .options = "--loop --eval-bs",
     .message = "{--loop}: TRL 1.16's trainer gives the model the prompts' text in an evaluation, which fails",
     .accepted = "no --eval-bs, or --loop trl-grpo, trl-rloo",
     .broken =
         [](const RuleQuestion& q) {
           return training_of(q).evaluation.has_value() && training_of(q).loop == Loop::kTrlOnlineDpo;
         }},
    {.id = "trl-vllm-evaluation",
     .options = "--vllm --eval-bs",
     .message = "evaluation: of {--loop} with vLLM, whose weights it renews out of step, it is not modelled",
     .accepted = "no --eval-bs, or no --vllm",
     .broken = [](const RuleQuestion& q) { return training_of(q).evaluation.has_value() && q.run.uses_vllm(); }},
};

constexpr Rule kVllm[] = {
    {.id = "vllm-packed",
     .options = "--vllm --quantize",
     .message = "vllm: merging adapters into packed weights for it is not modelled",
     .accepted = "no --quantize, or no --vllm",
     .broken = quantizes},
    {.id = "vllm-max-length",
     .options = "--vllm-max-length --seq",
     .message = "vllm: a prompt and its completion are longer than the {} tokens that it takes",
     .accepted = "--vllm-max-length of at least --seq",
     .broken =
         [](const RuleQuestion& q) {
           const std::int64_t most = training_of(q).vllm.max_length;
           return most > 0 && q.run.sequence_length > most;
         },
     .detail = [](const RuleQuestion& q) { return fmt::format("{}", training_of(q).vllm.max_length); }},
    {.id = "vllm-context",
     .options = "--vllm-max-length --model",
     .message = "vllm: {model} has positions for {} tokens, and vLLM refuses to take more",
     .accepted = "--vllm-max-length of at most the model's context",
     .broken =
         [](const RuleQuestion& q) {
           const std::optional<std::int64_t> trained = trained_context(q.model);
           return trained && training_of(q).vllm.max_length > *trained;
         },
     .detail = [](const RuleQuestion& q) { return fmt::format("{}", trained_context(q.model).value_or(0)); }},
    {.id = "vllm-expandable",
     .options = "--vllm-sleep --expandable",
     .message = "vllm: with expandable segments its sleep is not modelled",
     .accepted = "one of --vllm-sleep and --expandable",
     .broken = [](const RuleQuestion& q) { return training_of(q).vllm.sleeps && q.run.expandable_segments; }},
};

bool smooths_labels(const RuleQuestion& q) { return trains(q) && training_of(q).smooths_labels; }

constexpr Rule kSmoothing[] = {
    {.id = "label-smoothing-loop",
     .options = "--label-smoothing --loop",
     .message = "label smoothing: {--loop} has a loss of its own, which it does not change",
     .accepted = "--loop trainer, trl-sft, or no --label-smoothing",
     .broken =
         [](const RuleQuestion& q) {
           const Loop loop = training_of(q).loop;
           return loop != Loop::kTrainer && loop != Loop::kTrlSft;
         }},
    {.id = "label-smoothing-task",
     .options = "--label-smoothing --task --model",
     .message = "label smoothing: of {model}, task {--task}, it is not modelled",
     .accepted = "--task causal, mlm, seqcls, image of a family, or no --label-smoothing",
     .broken =
         [](const RuleQuestion& q) {
           const bool known = is_causal(q) || q.run.task == Task::kSequenceClassification ||
                              q.run.task == Task::kMaskedLm || q.run.task == Task::kImageClassification;
           return !known || is_recorded(q);
         }},
    {.id = "label-smoothing-alone",
     .options = "--label-smoothing --compile --gpus --parallel --sft-loss --lengths --profile",
     .message = "label smoothing: with torch.compile, sharded parameters, another loss type, rows without padding or a "
                "TRL before 1.15 it is not modelled",
     .accepted = "--label-smoothing with --parallel ddp or one GPU, --sft-loss nll",
     .broken =
         [](const RuleQuestion& q) {
           const bool shards = is_megatron(q) || (is_parallel(q) && q.parallel.data_parallel != DataParallel::kDdp);
           return q.run.compiles() || shards || training_of(q).sft_loss != SftLoss::kNll || q.run.is_padding_free() ||
                  (trains_by_sft(q) && q.run.profile.behaviors.sft_loss != SftLossForm::kFusedHead);
         }},
};

constexpr Rule kCompletions[] = {
    {.id = "float32-head-alone",
     .options = "--float32-head --parallel --vllm --liger",
     .message = "float32 head: of sharded parameters, beside vLLM or with Liger's kernels it is not modelled",
     .accepted = "--float32-head with one GPU or --parallel ddp, or none of it",
     .broken =
         [](const RuleQuestion& q) {
           const bool shards = is_megatron(q) || (is_parallel(q) && q.parallel.data_parallel != DataParallel::kDdp);
           return training_of(q).float32_head && (shards || q.run.uses_vllm() || q.run.fine_tuning.liger);
         }},
    {.id = "trl-generations",
     .options = "--generations --bs --accum --steps-per-generation",
     .message = "completions: {} are generated at once, which are no whole prompts of --generations",
     .accepted =
         "--bs times --steps-per-generation (or --accum) times --gpus a multiple of --generations, of 2 or more",
     .broken =
         [](const RuleQuestion& q) {
           const std::int64_t each = training_of(q).generations;
           return each == 1 || (each > 1 && generated_at_once(q) % each != 0);
         },
     .detail = [](const RuleQuestion& q) { return fmt::format("{}", generated_at_once(q)); }},
    {.id = "trl-generation-size",  // all of them are simulated: 4096 take 2 s and 1 GiB
     .options = "--loop --accum --steps-per-generation",
     .message = "completions: {--loop} with more than 4096 micro-batches in a generation is not simulated",
     .accepted = "--accum of 4096 or less",
     .broken = [](const RuleQuestion& q) { return training_of(q).generated_micro_batches() > 4096; }},
    {.id = "trl-generate-every",
     .options = "--steps-per-generation --iterations --accum",
     .message =
         "completions: generations that do not begin with a step are simulated in steps of up to 64 micro-batches, "
         "and where they last for no more than 8 steps",
     .accepted = "--steps-per-generation times --iterations a multiple of --accum",
     .broken =
         [](const RuleQuestion& q) {
           const std::int64_t every = training_of(q).generate_every(), step = training_of(q).accumulation_steps;
           return every % step != 0 && (step > 64 || every > 8 * step);
         }},
};

constexpr Rule kEvaluation[] = {
    {.id = "evaluation-in-the-trainer",
     .options = "--eval-bs --loop",
     .message = "evaluation: a plain loop has none of its own",
     .accepted = "--loop trainer, trl-sft, trl-reward, sentence-transformer, cross-encoder",
     .broken = [](const RuleQuestion& q) { return !q.run.uses_trainer(); }},
    {.id = "evaluation-parallel",
     .options = "--eval-bs --gpus --parallel",
     .message = "evaluation: under {--parallel} it is not modelled",
     .accepted = "--parallel ddp, fsdp2, ds-zero1 to ds-zero3, or no --eval-bs",
     .broken = is_one_process},
    {.id = "evaluation-of-a-family",
     .options = "--eval-bs --model",
     .message = "evaluation: of a recorded program it is not modelled",
     .accepted = "no --eval-bs",
     .broken = is_recorded},
    {.id = "evaluation-compile",
     .options = "--eval-bs --compile",
     .message = "evaluation: of a compiled model it is not modelled",
     .accepted = "one of --eval-bs and --compile",
     .broken = [](const RuleQuestion& q) { return q.run.compiles(); }},
    {.id = "evaluation-logits-of-trl",
     .options = "--eval-logits --loop",
     .message =
         "evaluation: {--loop} never makes logits; it runs the model a second time for them, which is not modelled",
     .accepted = "no --eval-logits, or --loop trainer",
     .broken =
         [](const RuleQuestion& q) {
           const bool makes = training_of(q).loop == Loop::kTrlReward || q.run.uses_sentence_transformers();
           return q.run.uses_trl() && !makes && training_of(q).evaluation->keeps_logits;
         }},
    {.id = "evaluation-of-scores",
     .options = "--eval-logits --loop",
     .message = "evaluation: what {--loop} keeps for compute_metrics is not modelled",
     .accepted = "no --eval-logits, or --loop trainer",
     .broken =
         [](const RuleQuestion& q) {
           const bool scores = training_of(q).loop == Loop::kTrlReward || q.run.uses_sentence_transformers();
           return scores && training_of(q).evaluation->keeps_logits;
         }},
};

bool generates_in_evaluation(const RuleQuestion& q) { return q.run.generates_in_evaluation(); }

constexpr Rule kGeneratedPredictions[] = {
    {.id = "eval-generate-seq2seq",
     .options = "--eval-generate --task --loop",
     .message = "evaluation: it is Seq2SeqTrainer that generates in one, a model that writes tokens: not {--loop}, not "
                "the task {--task}",
     .accepted = "--task seq2seq, causal, speech and --loop trainer, or no --eval-generate",
     .broken =
         [](const RuleQuestion& q) {
           const bool writes = is_causal(q) || q.run.task == Task::kSeq2Seq || q.run.task == Task::kSpeech;
           return !writes || training_of(q).loop != Loop::kTrainer;
         }},
    {.id = "eval-generate-logits",
     .options = "--eval-generate --eval-logits",
     .message = "evaluation: with predict_with_generate the predictions are tokens, not logits",
     .accepted = "one of --eval-generate and --eval-logits",
     .broken = [](const RuleQuestion& q) { return training_of(q).evaluation->keeps_logits; }},
    {.id = "eval-generate-one-gpu",
     .options = "--eval-generate --gpus --parallel",
     .message = "evaluation: generation under {--parallel} is not modelled",
     .accepted = "--gpus 1, --parallel ddp, or no --eval-generate",
     .broken = [](const RuleQuestion& q) { return is_parallel(q) && q.parallel.data_parallel != DataParallel::kDdp; }},
};

constexpr Rule kEvaluationBeams[] = {
    {.id = "eval-beams-generate",
     .options = "--eval-beams --eval-generate",
     .message = "evaluation: beams are of generation, which it does not do",
     .accepted = "--eval-generate N, or no --eval-beams",
     .broken = [](const RuleQuestion& q) { return !generates_in_evaluation(q); }},
};

constexpr Rule kEvaluationLabels[] = {
    {.id = "eval-labels-generate",
     .options = "--no-eval-labels --eval-generate",
     .message = "evaluation: without labels it computes nothing but what it generates, and it generates nothing",
     .accepted = "--eval-generate N, or no --no-eval-labels",
     .broken = [](const RuleQuestion& q) { return !generates_in_evaluation(q); }},
};

constexpr Rule kSentences[] = {
    {.id = "sentences-bi-encoder",
     .options = "--loop --task",
     .message = "{--loop}: a bi-encoder is the model without a head, not one for the task {--task}",
     .accepted = "--task features, or --loop cross-encoder",
     .broken =
         [](const RuleQuestion& q) {
           return training_of(q).loop == Loop::kSentenceTransformer && q.run.task != Task::kFeatures;
         }},
    {.id = "sentences-cross-encoder",
     .options = "--loop --task",
     .message = "{--loop}: a cross-encoder classifies pairs of texts, unlike the task {--task}",
     .accepted = "--task seqcls, or --loop sentence-transformer",
     .broken =
         [](const RuleQuestion& q) { return training_of(q).loop == Loop::kCrossEncoder && !classifies_sequences(q); }},
    {.id = "sentences-encoders",
     .options = "--loop --model",
     .message = "{--loop}: {model} is no encoder, and sentences of others are not modelled",
     .accepted = "bert-base, roberta-base, distilbert-base, or --loop trainer",
     .broken = [](const RuleQuestion& q) { return !is_encoder(q.model); }},
    {.id = "sentences-alone",
     .options = "--loop --gpus --parallel --compile --padding --lora --lengths --quantize",
     .message = "{--loop}: several GPUs but by DDP, compilation, packed weights, --padding, and under DDP adapters and "
                "--lengths, are not modelled",
     .accepted = "--loop {--loop} without them; --lengths for texts of several lengths",
     .broken =
         [](const RuleQuestion& q) {
           const bool is_ddp = q.parallel.data_parallel == DataParallel::kDdp;
           const bool more = has_adapters(q) || training_of(q).lengths.has_value();
           return (is_parallel(q) && (!is_ddp || more)) || is_megatron(q) || q.run.compiles() || q.run.padding ||
                  quantizes(q);
         }},
    {.id = "cross-encoder-head",
     .options = "--loop --lora --lora-head --model",
     .message = "cross-encoder: modules_to_save=[\"classifier\"] of add_adapter() copies more than the last layer of "
                "{model}, which is not modelled",
     .accepted = "--model bert-base, or no --lora-head",
     .broken =
         [](const RuleQuestion& q) {
           return training_of(q).loop == Loop::kCrossEncoder && has_adapters(q) &&
                  q.run.fine_tuning.lora->trains_head && q.model.model_type != "bert";
         }},
    {.id = "cross-encoder-ddp",
     .options = "--loop --gpus --parallel",
     .message = "cross-encoder: under DDP it fails in sentence-transformers 6.0.1 (Expected to mark a variable ready "
                "only once)",
     .accepted = "--gpus 1, or --loop sentence-transformer",
     .broken = [](const RuleQuestion& q) { return training_of(q).loop == Loop::kCrossEncoder && is_parallel(q); }},
};

constexpr Rule kFeatures[] = {
    {.id = "features-have-no-loss",
     .options = "--task --loop",
     .message = "task features: hidden states have no loss of their own",
     .accepted = "--loop sentence-transformer",
     .broken = [](const RuleQuestion& q) { return !trains(q) || training_of(q).loop != Loop::kSentenceTransformer; }},
};

}  // namespace

std::span<const RuleGroup> rules_of_trl() {
  static constexpr Rule kLengths[] = {
      {.id = "lengths-of-tokens",
       .options = "--lengths --task --loop",
       .message = "lengths: batches of different lengths are modelled for classifiers and causal models in the Trainer "
                  "and TRL, for encoder-decoders in the Trainer, and for sentence-transformers",
       .accepted = "--task seqcls, causal with --loop trainer or TRL's; --task seq2seq with --loop trainer; --loop "
                   "sentence-transformer",
       .broken =
           [](const RuleQuestion& q) {
             const bool task = is_causal(q) || q.run.task == Task::kSequenceClassification;
             const bool pairs = q.run.task == Task::kSeq2Seq && training_of(q).loop == Loop::kTrainer;
             return (!task && !pairs && !q.run.uses_sentence_transformers()) || !q.run.uses_trainer();
           }},
      {.id = "lengths-of-answers",
       .options = "--lengths --loop",
       .message = "lengths: {--loop} does not tell prompts from answers",
       .accepted = "one length a line; 200/57 with --loop trl-sft, trl-kto, sentence-transformer; 200/57/80 with "
                   "--loop trl-dpo, trl-orpo, trl-reward, or --hard-negatives",
       .broken =
           [](const RuleQuestion& q) {
             if (training_of(q).lengths->samples == nullptr) return false;
             const SampleLengths& samples = *training_of(q).lengths->samples;
             if (q.run.task == Task::kSeq2Seq) return false;  // spec/data_lengths.cc has looked
             const bool texts = q.run.uses_sentence_transformers();
             const bool answers = q.run.trains_on_answers() || q.run.trains_on_pairs() || trains_by_sft(q) || texts;
             const bool tells = answers && !q.run.generates();  // whose completions are as long as --completion
             const bool has_third = q.run.trains_on_pairs() || (texts && training_of(q).sentences.hard_negatives > 0);
             return (!samples.prompts.empty() && !tells) || (!samples.rejected.empty() && !has_third);
           }},
      {.id = "lengths-fewest-prompts",
       .options = "--lengths --generations --bs --accum --steps-per-generation",
       .message = "lengths: a generation takes {} prompts, of which there are not as many; TRL would not make a step",
       .accepted = "a longer --lengths, or a larger --generations",
       .broken =
           [](const RuleQuestion& q) {
             const SampleLengths* samples = training_of(q).lengths->samples.get();
             return repeats_prompts(q) && samples != nullptr &&
                    static_cast<std::int64_t>(samples->tokens.size()) * training_of(q).generations <
                        generated_at_once(q);
           },
       .detail =
           [](const RuleQuestion& q) { return fmt::format("{}", generated_at_once(q) / training_of(q).generations); }},
      {.id = "lengths-generation-steps",
       .options = "--lengths --steps-per-generation --iterations --accum --pad-to-multiple",
       .message = "lengths: generations within a step, and prompts padded to a multiple, are not modelled",
       .accepted =
           "--steps-per-generation times --iterations a multiple of --accum, or a divisor; no --pad-to-multiple",
       .broken =
           [](const RuleQuestion& q) {
             if (!q.run.generates()) return false;
             const std::int64_t every = training_of(q).generate_every(), step = training_of(q).accumulation_steps;
             const bool within = repeats_prompts(q) && every % step != 0 && step % every != 0;
             return within || training_of(q).lengths->pad_to_multiple_of > 1;
           }},
      {.id = "lengths-of-packed-answers",
       .options = "--lengths --packing --padding-free",
       .message = "lengths: of packed rows, and of rows without padding, it is not modelled that the answers alone "
                  "are trained on",
       .accepted = "one length a line, or no --packing, --padding-free",
       .broken =
           [](const RuleQuestion& q) {
             const DataLengths& lengths = *training_of(q).lengths;
             const bool tells = lengths.samples != nullptr && !lengths.samples->prompts.empty();
             return tells && (lengths.packing || lengths.padding_free);
           }},
      {.id = "lengths-grouped-answers",
       .options = "--lengths --group-by-length --loop",
       .message = "lengths: {--loop} has no input_ids by which the Trainer could group samples",
       .accepted = "no --group-by-length",
       .broken =
           [](const RuleQuestion& q) {
             return training_of(q).lengths->grouped && (q.run.trains_on_answers() || q.run.trains_on_pairs());
           }},
      {.id = "lengths-of-a-family",
       .options = "--lengths --model",
       .message = "lengths: of a recorded program batches of different lengths are not modelled",
       .accepted = "no --lengths",
       .broken = is_recorded},
      {.id = "lengths-parallel",
       .options = "--lengths --gpus --parallel",
       .message = "lengths: under {--parallel} batches of different lengths are not modelled",
       .accepted = "--parallel ddp, fsdp2, ds-zero1 to ds-zero3, or no --lengths",
       .broken = is_one_process},
      {.id = "lengths-alone",
       .options = "--lengths --compile --padding",
       .message = "lengths: beside compilation or --padding batches of different lengths are not modelled",
       .accepted = "--lengths without --compile, --padding",
       .broken = [](const RuleQuestion& q) { return q.run.compiles() || q.run.padding; }},
      {.id = "lengths-evaluation-rows",
       .options = "--lengths --eval-bs --packing --padding-free",
       .message = "lengths: the evaluation of packed rows, and of rows without padding, is not modelled",
       .accepted = "--lengths without --eval-bs, or without --packing, --padding-free",
       .broken =
           [](const RuleQuestion& q) {
             const DataLengths& lengths = *training_of(q).lengths;
             return training_of(q).evaluation.has_value() && (lengths.packing || lengths.padding_free);
           }},
  };
  static constexpr RuleGroup kGroups[] = {
      {.title = "TRL's trainers", .concerns = [](const RuleQuestion& q) { return q.run.uses_trl(); }, .rules = kTrl},
      {.title = "TRL's SFTTrainer", .concerns = trains_by_sft, .rules = kSft},
      {.title = "TRL's trainers on answers",
       .concerns = [](const RuleQuestion& q) { return q.run.trains_on_answers(); },
       .rules = kAnswers},
      {.title = "Trainers that generate",
       .concerns = [](const RuleQuestion& q) { return q.run.generates(); },
       .rules = kGenerates},
      {.title = "Trainers that score completions",
       .concerns =
           [](const RuleQuestion& q) { return q.run.generates() && training_of(q).loop != Loop::kTrlOnlineDpo; },
       .rules = kCompletions},
      {.title = "Label smoothing", .concerns = smooths_labels, .rules = kSmoothing},
      {.title = "vLLM", .concerns = [](const RuleQuestion& q) { return q.run.uses_vllm(); }, .rules = kVllm},
      {.title = "Trainers on answers of the data set",
       .concerns = [](const RuleQuestion& q) { return q.run.trains_on_answers() && !q.run.generates(); },
       .rules = kPairs},
      {.title = "Trainers of sentence-transformers",
       .concerns = [](const RuleQuestion& q) { return q.run.uses_sentence_transformers(); },
       .rules = kSentences},
      {.title = "Hidden states",
       .concerns = [](const RuleQuestion& q) { return q.run.task == Task::kFeatures; },
       .rules = kFeatures},
      {.title = "Generation in evaluation", .concerns = generates_in_evaluation, .rules = kGeneratedPredictions},
      {.title = "Evaluation",
       .concerns = [](const RuleQuestion& q) { return trains(q) && training_of(q).evaluation.has_value(); },
       .rules = kEvaluation},
      {.title = "Beams in evaluation",
       .concerns =
           [](const RuleQuestion& q) {
             return trains(q) && training_of(q).evaluation && training_of(q).evaluation->beams > 1;
           },
       .rules = kEvaluationBeams},
      {.title = "Evaluation without labels",
       .concerns =
           [](const RuleQuestion& q) {
             return trains(q) && training_of(q).evaluation && !training_of(q).evaluation->has_labels;
           },
       .rules = kEvaluationLabels},
      {.title = "Batches of different lengths",
       .concerns = [](const RuleQuestion& q) { return trains(q) && training_of(q).lengths.has_value(); },
       .rules = kLengths},
  };
  return kGroups;
}

}  // namespace memcalc
