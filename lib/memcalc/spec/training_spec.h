// How a model is trained: what only a run that trains has. The option names of the command line are in comments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "memcalc/base/dtype.h"
#include "memcalc/spec/float8.h"
#include "memcalc/spec/lengths.h"

namespace memcalc {

/// --loop. kTrainer: transformers' Trainer with its defaults; kBare: forward, backward, step with torch's defaults; the
/// others: the trainers of TRL and of sentence-transformers, which run in transformers' Trainer and put their own loss
/// in the place of its.
enum class Loop : std::uint8_t {
  kTrainer,
  kBare,
  kTrlSft,
  kTrlDpo,
  kTrlKto,
  kTrlGrpo,
  kTrlRloo,
  kTrlReward,
  kSentenceTransformer,
  kCrossEncoder,
  kTrlOrpo,
  kTrlOnlineDpo
};

/// SentenceTransformerTrainer, CrossEncoderTrainer.
[[nodiscard]] constexpr bool is_sentence_transformers(Loop loop) {
  return loop == Loop::kSentenceTransformer || loop == Loop::kCrossEncoder;
}
[[nodiscard]] constexpr bool is_trl(Loop loop) {
  return loop != Loop::kTrainer && loop != Loop::kBare && !is_sentence_transformers(loop);
}
/// A sample is two sequences: the chosen answer and the rejected one.
[[nodiscard]] constexpr bool trains_on_pairs(Loop loop) {
  return loop == Loop::kTrlDpo || loop == Loop::kTrlReward || loop == Loop::kTrlOrpo;
}
/// A step begins with model.generate().
[[nodiscard]] constexpr bool generates(Loop loop) {
  return loop == Loop::kTrlGrpo || loop == Loop::kTrlRloo || loop == Loop::kTrlOnlineDpo;
}
/// The loss is of the tokens that answer, so that they are told from the prompt.
[[nodiscard]] constexpr bool has_completions(Loop loop) {
  return loop == Loop::kTrlDpo || loop == Loop::kTrlKto || loop == Loop::kTrlOrpo || generates(loop);
}
/// The model gives one number for a sequence, whatever its config.json says.
[[nodiscard]] constexpr bool gives_one_score(Loop loop) {
  return loop == Loop::kTrlReward || loop == Loop::kCrossEncoder;
}
[[nodiscard]] constexpr bool is_trainer(Loop loop) { return loop != Loop::kBare; }

/// --checkpointing: kFull wraps layers in torch.utils.checkpoint (non-reentrant), kSelective in its selective form with
/// torchtitan's list of operators to keep.
enum class Checkpointing : std::uint8_t { kNone, kFull, kSelective };

/// --compile-parts: the whole model as one graph; each layer by itself, as torchtitan does and accelerate's regional
/// compilation; these and the loss.
enum class CompiledParts : std::uint8_t { kModel, kLayers, kLayersAndLoss };

/// --compile-mode: of torch.compile. reduce-overhead records what it compiles in CUDA graphs.
enum class CompileMode : std::uint8_t { kDefault, kReduceOverhead };

/// --optimizer, with torch's defaults (foreach) where the name says nothing else. kAdafactor is transformers'; what
/// comes after kMuon is bitsandbytes'. Each has a rule in train/optimizers/.
enum class Optimizer : std::uint8_t {
  kAdamWForeach,
  kAdamWFused,
  kAdamWForLoop,
  kSgd,
  kSgdMomentum,
  kSgdWeightDecay,
  kAdam,
  kAdamWAmsgrad,
  kNAdam,
  kRAdam,
  kAdamax,
  kAdagrad,
  kAdagradForLoop,
  kRmsprop,
  kAdafactor,
  kAdafactorRelative,
  kAdafactorTorch,
  kMuon,
  kAdamWBnb,
  kAdamW8bit,
  kPagedAdamW,
  kPagedAdamW8bit,
  kLion,
  kLion8bit,
  kPagedLion,
  kPagedLion8bit,
  kRmspropBnb,
  kRmsprop8bit,
  kSgdMomentum8bit,
  kAdEMAMix,
  kAdEMAMix8bit,
  kPagedAdEMAMix,
  kPagedAdEMAMix8bit,
  kAdamWTorchao8bit,
  kAdamWTorchao4bit,
};
inline constexpr std::size_t kOptimizerCount = 35;

/// --ref-model, with which the model that trains is compared: none; a second model beside it; the model without its
/// adapters; numbers that were computed before the first step.
enum class Reference : std::uint8_t { kNone, kModel, kAdapters, kPrecomputed };

/// --vllm, what writes the completions of a trainer that generates: transformers' generate(); vLLM in the same process
/// and on the same card; vLLM as a server on other cards.
enum class VllmMode : std::uint8_t { kNone, kColocate, kServer };

/// --vllm-correction, GRPOConfig.vllm_importance_sampling_correction and its mode: nothing is corrected; a ratio of
/// each completion or of each token, 0 where it is beyond the limits, or cut there.
enum class VllmCorrection : std::uint8_t { kNone, kSequenceMask, kTokenMask, kSequenceTruncate, kTokenTruncate };

/// What TRL's configurations say of vLLM (use_vllm, vllm_mode, vllm_*).
struct Vllm {
  VllmMode mode = VllmMode::kNone;
  VllmCorrection correction = VllmCorrection::kSequenceMask;  // of GRPO; --vllm-correction
  double utilization = 0.3;     // share of the card's whole memory, vllm_gpu_memory_utilization; --vllm-utilization
  bool sleeps = false;          // vllm_enable_sleep_mode: gives its memory back while the model trains; --vllm-sleep
  std::int64_t max_length = 0;  // vllm_max_model_length; 0: the model's whole context; --vllm-max-length
};

/// --grpo-loss, GRPOConfig.loss_type.
enum class GrpoLoss : std::uint8_t { kGrpo, kBnpo, kDrGrpo, kDapo, kCispo, kSapo, kLuspo, kVespo };

/// --importance-level, GRPOConfig.importance_sampling_level: a ratio for each token, or one for each completion.
enum class ImportanceLevel : std::uint8_t { kToken, kSequence };

/// --sft-loss, SFTConfig.loss_type: the mean of the tokens' negative log-probabilities, or DFT, which weighs each by
/// its probability.
enum class SftLoss : std::uint8_t { kNll, kDft };

/// --kto-loss, KTOConfig.loss_type. kApoZeroUnpaired estimates no KL divergence: no second answer goes through a model.
enum class KtoLoss : std::uint8_t { kKto, kApoZeroUnpaired };

/// --stages: what of a job counts for its peak: its steps (and evaluations), or all that it does: loading the model,
/// preparing it, training, evaluating, merging and saving.
enum class Stages : std::uint8_t { kTrain, kAll };

/// --load: how the model comes to be on the card. kConfig: with torch.device("cuda"): Model(config), as where a model
/// is trained from nothing; kDeviceMap: from_pretrained(…, device_map="cuda" or "auto"), which writes each weight to
/// the card; kHost: from_pretrained(…), and then model.to("cuda"), which the Trainer does.
/// kRank0: the same with accelerate's cpu_ram_efficient_loading: rank 0 alone reads it, and sends it to the others.
enum class ModelLoading : std::uint8_t { kConfig, kDeviceMap, kHost, kRank0 };

[[nodiscard]] constexpr bool reads_on_host(ModelLoading loading) {
  return loading == ModelLoading::kHost || loading == ModelLoading::kRank0;
}

/// --save, after the last step: nothing; a checkpoint of the Trainer (of a plain loop: model.save_pretrained() and
/// torch.save() of the optimizer's states); peft's merge_and_unload() and save_pretrained() of what it returns; of
/// FSDP2 a full state dict, gathered on rank 0's host, or a sharded one.
enum class ModelSaving : std::uint8_t { kNone, kCheckpoint, kMerge, kFull, kSharded };

/// Trainer.evaluate() between two steps.
struct Evaluation {
  std::int64_t batch_size = 8;    // --eval-bs
  std::int64_t samples = 8;       // --eval-samples
  bool keeps_logits = false;      // compute_metrics is given, so prediction_loss_only is False; --eval-logits
  std::int64_t move_to_host = 0;  // eval_accumulation_steps: after as many batches; 0: at the end; --eval-accum
  std::int64_t new_tokens = 0;    // Seq2SeqTrainer's predict_with_generate, for each sample; 0: none; --eval-generate
  std::int64_t beams = 1;         // generation_num_beams; --eval-beams
  bool has_labels = true;         // else they are kept from the card, and there is no loss; --no-eval-labels
};

/// TRL's SFTConfig.packing_strategy; --packing.
enum class PackingStrategy : std::uint8_t {
  kBfd,       // best fit, the longest first; what is beyond the row is cut off
  kBfdSplit,  // the same, but a sample that is too long is split into several
  kWrapped,   // all tokens in a line, cut into rows: a row counts as one sequence
};

/// Batches as long as the data makes them: the Trainer's sampler and a collator that pads to the longest of a batch.
struct DataLengths {
  std::string argument;                          // --lengths
  std::shared_ptr<const SampleLengths> samples;  // cut at --seq, but where they are packed
  std::int64_t steps = 0;                        // --steps; 0: one epoch
  std::optional<PackingStrategy> packing{};      // rows of --seq tokens, each of several samples; --packing
  bool padding_free = false;                     // all sequences of a batch in one row; --padding-free
  bool grouped = false;                          // samples of one length together; --group-by-length
  std::int64_t pad_to_multiple_of = 1;           // of a batch's columns; --pad-to-multiple
  std::int64_t seed = 42;                        // TrainingArguments.seed; --seed
};

/// --contrastive-loss, of sentence-transformers: MultipleNegativesRankingLoss, or the cached one, which embeds its
/// texts a mini-batch at a time, once without and once with gradients.
enum class ContrastiveLoss : std::uint8_t { kMnrl, kCachedMnrl };

/// What a bi-encoder is trained on: an anchor, a positive, and so many hard negatives.
struct SentencePairs {
  ContrastiveLoss loss = ContrastiveLoss::kMnrl;
  std::int64_t mini_batch_size = 32;  // kCachedMnrl; --mini-batch
  std::int64_t hard_negatives = 0;    // --hard-negatives

  [[nodiscard]] std::int64_t columns() const { return 2 + hard_negatives; }
};

struct Training {
  Loop loop = Loop::kTrainer;
  Optimizer optimizer = Optimizer::kAdamWFused;
  Checkpointing checkpointing = Checkpointing::kNone;
  std::int32_t iterations = 1;            // GRPO, RLOO: how often a completion is trained on; --iterations
  std::int32_t generations = 8;           // GRPO, RLOO with --lengths: completions of a prompt; --generations
  std::int64_t checkpoint_every = 1;      // kFull: of the layers 0, N, 2N, …; --checkpointing every-N
  std::optional<bool> reentrant;          // kFull: use_reentrant; absent: the version's default; --reentrant
  bool offload_activations = false;       // what autograd saves goes to pinned host memory; --activation-offload
  bool float32_head = false;              // of GRPOTrainer: the head and its products are float32; --float32-head
  std::int32_t steps_per_generation = 0;  // GRPO, RLOO: micro-batches that are generated at once; 0: --accum
  std::int64_t accumulation_steps = 1;    // micro-batches per optimizer step; --accum
  std::optional<double> max_grad_norm;    // clip_grad_norm_ where set; the Trainer's default is 1.0; --clip-grad
  bool loss_in_loop = false;              // the model returns logits alone, as torchtitan's; --loss-in-loop
  bool compile = false;                   // torch.compile; --compile
  CompiledParts compiled_parts = CompiledParts::kModel;  // of what; --compile-parts
  CompileMode compile_mode = CompileMode::kDefault;      // --compile-mode
  Float8 float8 = Float8::kNone;                         // products of the layers; --float8
  bool offload_optimizer = false;          // optimizer states and step on the host (torchao); --offload-optimizer
  bool optimizer_in_backward = false;      // each parameter is stepped as its gradient arrives
  bool offload_gradients = false;          // gradients die once they are copied there; --offload-gradients
  std::int64_t completion_length = 0;      // of a sequence's tokens those that answer; which --completion says
  SftLoss sft_loss = SftLoss::kNll;        // of TRL's SFTTrainer; --sft-loss
  KtoLoss kto_loss = KtoLoss::kKto;        // of TRL's KTOTrainer; --kto-loss
  bool whole_logits = false;               // of both: float32 logits of every token, as LLaMA-Factory; --whole-logits
  bool balances_experts = false;           // of TRL's trainers: the routers' auxiliary loss; --no-router-loss
  std::optional<DType> sharded_from;       // FSDP1 turns shards of what was loaded in this type into float32
  bool reference_in_half = false;          // a model that FSDP shards in float32 was loaded in 16 bits, as it stays
  Reference reference = Reference::kNone;  // of TRL's trainers on preferences and rewards; --ref-model
  bool smooths_labels = false;             // TrainingArguments.label_smoothing_factor; --label-smoothing
  GrpoLoss grpo_loss = GrpoLoss::kDapo;    // of GRPOTrainer; --grpo-loss
  ImportanceLevel importance_level = ImportanceLevel::kToken;  // likewise; --importance-level
  Vllm vllm;                                                   // of trainers that generate
  SentencePairs sentences;                                     // of SentenceTransformerTrainer
  std::optional<DataLengths> lengths;                          // absent: every sequence has --seq tokens
  Stages stages = Stages::kTrain;                              // of one GPU
  ModelLoading loading = ModelLoading::kConfig;                // with a packed base kDeviceMap
  ModelSaving saving = ModelSaving::kNone;                     // where all stages count
  std::optional<Evaluation> evaluation;                        // in the Trainer
  std::int64_t skipped_steps = 0;  // first steps that the loss scaler skips; --skipped-steps

  /// GRPO, RLOO: micro-batches whose completions are generated at once; from one generation to the next.
  [[nodiscard]] std::int64_t generated_micro_batches() const {
    return steps_per_generation > 0 ? steps_per_generation : accumulation_steps;
  }
  [[nodiscard]] std::int64_t generate_every() const { return generated_micro_batches() * iterations; }
};

}  // namespace memcalc
