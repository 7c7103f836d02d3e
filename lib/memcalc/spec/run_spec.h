// RunSpec: how a model is trained, as plain values. The option names of the command line are in comments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/base/dtype.h"
#include "memcalc/spec/fine_tuning.h"
#include "memcalc/spec/float8.h"
#include "memcalc/spec/inference_spec.h"
#include "memcalc/spec/parallel_spec.h"

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
};

/// --precision. amp-*: float32 weights under torch.autocast; bf16, fp16: weights and all in that type.
enum class Precision : std::uint8_t { kFp32, kTf32, kAmpFp16, kAmpBf16, kBf16, kFp16 };

/// --loop. kTrainer: transformers' Trainer with its defaults; kBare: forward, backward, step with torch's defaults.
enum class Loop : std::uint8_t { kTrainer, kBare };

/// --attn: the attn_implementation of transformers.
enum class Attention : std::uint8_t { kSdpa, kEager, kFlash };

/// --checkpointing: kFull wraps layers in torch.utils.checkpoint (non-reentrant), kSelective in its selective form with
/// torchtitan's list of operators to keep.
enum class Checkpointing : std::uint8_t { kNone, kFull, kSelective };

/// --compile-parts: the whole model as one graph; each layer by itself, as torchtitan does and accelerate's regional
/// compilation; these and the loss.
enum class CompiledParts : std::uint8_t { kModel, kLayers, kLayersAndLoss };

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
};
inline constexpr std::size_t kOptimizerCount = 33;

struct RunSpec {
  Task task = Task::kCausalLm;
  std::int64_t batch_size = 1;              // sequences per micro-batch and device; --bs
  std::int64_t sequence_length = 0;         // tokens per sequence, padding included; of speech: of the labels; --seq
  std::int64_t target_sequence_length = 0;  // seq2seq: tokens per label sequence; --target-seq
  std::int64_t image_size = 0;              // pixels a side, square images; --image
  Precision precision = Precision::kFp32;
  std::optional<DType> weights_dtype;  // --weights-dtype; absent: what the precision says
  Loop loop = Loop::kTrainer;
  Optimizer optimizer = Optimizer::kAdamWFused;
  Attention attention = Attention::kSdpa;
  Checkpointing checkpointing = Checkpointing::kNone;
  std::int64_t checkpoint_every = 1;    // kFull: of the layers 0, N, 2N, …; --checkpointing every-N
  bool offload_activations = false;     // what autograd saves goes to pinned host memory; --activation-offload
  bool expandable_segments = false;     // PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; --expandable
  std::int64_t dataloader_workers = 0;  // processes that load batches; --loader-workers
  std::int64_t prefetch_factor = 2;     // batches that each worker prepares ahead; --prefetch-factor
  bool pin_memory = false;              // batches pass through pinned memory; --pin-memory
  std::int64_t accumulation_steps = 1;  // micro-batches per optimizer step; --accum
  std::optional<double> max_grad_norm;  // clip_grad_norm_ where set; the Trainer's default is 1.0; --clip-grad
  bool loss_in_loop = false;            // the model returns logits alone, as torchtitan's; --loss-in-loop
  bool use_cache = false;               // a plain loop over a decoder builds the KV cache; --use-cache
  bool padding = false;                 // some sequences are padded, so an attention mask is passed; --padding
  FineTuning fine_tuning;               // --lora, --quantize, --freeze, --liger
  std::optional<double> dropout;        // every dropout probability of the model; --dropout
  std::optional<Inference> inference;   // set: no training; --infer
  Parallel parallel;                    // --gpus, --parallel, --tp, …
  bool compile = false;                 // torch.compile; --compile
  CompiledParts compiled_parts = CompiledParts::kModel;  // of what; --compile-parts
  Float8 float8 = Float8::kNone;                         // products of the layers; --float8
  bool offload_optimizer = false;  // optimizer states and step on the host (torchao); --offload-optimizer
  bool offload_gradients = false;  // gradients die once they are copied there; --offload-gradients
  std::int64_t skipped_steps = 0;  // first steps that the loss scaler skips; --skipped-steps
};

}  // namespace memcalc
