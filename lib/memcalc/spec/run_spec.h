// RunSpec: how a model is run, as plain values. The option names of the command line are in comments.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "memcalc/base/dtype.h"
#include "memcalc/spec/fine_tuning.h"
#include "memcalc/spec/inference_spec.h"
#include "memcalc/spec/parallel_spec.h"
#include "memcalc/spec/profile.h"
#include "memcalc/spec/training_spec.h"

namespace memcalc {

/// What the model is trained for; decides the head and the labels. --task
enum class Task : std::uint8_t {
  kSequenceClassification,
  kMaskedLm,
  kCausalLm,
  kImageClassification,
  kTokenClassification,
  kSeq2Seq,
  kSpeech,
  kCustom,       // what the loss of a user's own layers says
  kContrastive,  // images and their captions against each other
  kFeatures,     // AutoModel: the hidden states themselves
  kQuestionAnswering,
};

/// Whether the head is one that peft's task_type trains in full: `classifier`, `score` or `qa_outputs` (--lora-head).
[[nodiscard]] constexpr bool has_classifier(Task task) {
  return task == Task::kSequenceClassification || task == Task::kTokenClassification ||
         task == Task::kQuestionAnswering;
}

/// --precision. amp-*: float32 weights under torch.autocast; bf16, fp16: weights and all in that type.
enum class Precision : std::uint8_t { kFp32, kTf32, kAmpFp16, kAmpBf16, kBf16, kFp16 };

/// --attn: the attn_implementation of transformers.
enum class Attention : std::uint8_t { kSdpa, kEager, kFlash };

struct RunSpec {
  Task task = Task::kCausalLm;
  std::int64_t batch_size = 1;              // sequences per micro-batch and device; --bs
  std::int64_t sequence_length = 0;         // tokens per sequence, padding included; of speech: of the labels; --seq
  std::int64_t target_sequence_length = 0;  // seq2seq: tokens per label sequence; --target-seq
  std::int64_t image_size = 0;              // pixels a side, square images; --image
  Precision precision = Precision::kFp32;
  std::optional<DType> weights_dtype;  // --weights-dtype; absent: what the precision says
  Attention attention = Attention::kSdpa;
  bool expandable_segments = false;           // PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; --expandable
  std::int64_t dataloader_workers = 0;        // processes that load batches; --loader-workers
  std::int64_t prefetch_factor = 2;           // batches that each worker prepares ahead; --prefetch-factor
  bool pin_memory = false;                    // batches pass through pinned memory; --pin-memory
  bool use_cache = false;                     // a decoder builds the KV cache; of plain loops: --use-cache
  bool generation_cache = true;               // generate() has one; else each token runs all before it again
  bool padding = false;                       // some sequences are padded, so an attention mask is passed; --padding
  FineTuning fine_tuning;                     // --lora, --quantize, --freeze, --liger, --unsloth
  std::optional<double> dropout;              // every dropout probability of the model; --dropout
  std::variant<Training, Inference> purpose;  // what the model is run for; --infer: the second
  Parallel parallel;                          // --gpus, --parallel, --tp, …
  Profile profile;                            // the frameworks' versions; --profile, --torch, --transformers, …

  [[nodiscard]] bool trains() const { return std::holds_alternative<Training>(purpose); }

  /// Of a run that trains: to ask another one is a bug, and throws.
  [[nodiscard]] const Training& training() const { return std::get<Training>(purpose); }
  [[nodiscard]] Training& training() { return std::get<Training>(purpose); }

  /// Null: the run trains.
  [[nodiscard]] const Inference* inference() const { return std::get_if<Inference>(&purpose); }
  [[nodiscard]] Inference* inference() { return std::get_if<Inference>(&purpose); }

  // What code asks that runs a model for either.
  [[nodiscard]] Checkpointing checkpointing() const {
    return trains() ? training().checkpointing : Checkpointing::kNone;
  }
  /// Whether checkpoints of whole layers are reentrant. prepare_model_for_kbit_training passes
  /// gradient_checkpointing_kwargs={}, which leaves torch's own default. What transformers passes by itself is a
  /// behaviour; TRL always says False.
  [[nodiscard]] bool checkpoints_reentrantly() const {
    if (checkpointing() != Checkpointing::kFull) return false;
    if (training().reentrant) return *training().reentrant;
    if (uses_trainer()) return !uses_trl() && profile.behaviors.reentrant_checkpoints;
    return fine_tuning.prepares_for_kbit || profile.behaviors.reentrant_checkpoints;
  }
  [[nodiscard]] bool uses_trainer() const { return trains() && is_trainer(training().loop); }
  [[nodiscard]] bool uses_trl() const { return trains() && is_trl(training().loop); }
  [[nodiscard]] bool generates() const { return trains() && memcalc::generates(training().loop); }
  [[nodiscard]] bool uses_vllm() const { return generates() && training().vllm.mode != VllmMode::kNone; }
  [[nodiscard]] bool generates_in_evaluation() const {
    return trains() && training().evaluation && training().evaluation->new_tokens > 0;
  }
  /// transformers' generate() is called: by itself, in the evaluation, or by a trainer.
  [[nodiscard]] bool calls_generate() const {
    if (!trains()) return inference()->new_tokens > 0;
    return generates_in_evaluation() || (generates() && !uses_vllm());
  }
  [[nodiscard]] bool shares_card_with_vllm() const {
    return generates() && training().vllm.mode == VllmMode::kColocate;
  }
  /// --completion of each sequence is the answer.
  [[nodiscard]] bool trains_on_answers() const { return trains() && has_completions(training().loop); }
  [[nodiscard]] bool trains_on_pairs() const { return trains() && memcalc::trains_on_pairs(training().loop); }
  [[nodiscard]] bool uses_sentence_transformers() const {
    return trains() && is_sentence_transformers(training().loop);
  }
  /// The model gives one number for a sequence, whatever its config.json says.
  [[nodiscard]] bool gives_one_score() const { return trains() && memcalc::gives_one_score(training().loop); }
  /// Sequences of a micro-batch.
  [[nodiscard]] std::int64_t rows() const { return trains_on_pairs() ? 2 * batch_size : batch_size; }
  /// All sequences of a batch stand in one row, and position_ids tell where each begins.
  [[nodiscard]] bool is_padding_free() const {
    return trains() && training().lengths && training().lengths->padding_free;
  }
  /// Whether batches come with an attention mask. Collators of TRL and sentence-transformers always make one, of ones
  /// where nothing is padded; that of rows without padding makes none.
  [[nodiscard]] bool passes_mask() const {
    if (is_padding_free()) return false;
    return padding || uses_trl() || uses_sentence_transformers() || (trains() && training().lengths);
  }
  /// Whether what the model's construction takes for a while may be the peak. Of a rank of several it is where the
  /// model comes from the host, and where each card packs a base of its own.
  [[nodiscard]] bool counts_construction() const {
    if (!trains()) return !parallel.is_parallel();
    const bool packs = fine_tuning.quantization != Quantization::kNone;
    const bool is_known = packs ? parallel.data_parallel == DataParallel::kDdp : reads_on_host(training().loading);
    return training().stages == Stages::kAll && (!parallel.is_parallel() || is_known);
  }
  [[nodiscard]] bool compiles() const { return trains() && training().compile; }
  [[nodiscard]] bool records_graphs() const {
    return compiles() && training().compile_mode == CompileMode::kReduceOverhead;
  }
  [[nodiscard]] std::int64_t accumulation_steps() const { return trains() ? training().accumulation_steps : 1; }
};

}  // namespace memcalc
