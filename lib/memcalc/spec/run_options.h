// RunOptions: what a person said about a run, every field optional. resolve() fills the rest and says what it filled:
// a default is never silent. Covered by tests/unit/run_options_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/base/dtype.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// RunSpec with everything optional; fields mean what they mean there.
struct RunOptions {
  std::optional<Task> task;                            // default by family: encoders seqcls, decoders causal
  std::optional<std::int64_t> batch_size;              // default 1
  std::optional<std::int64_t> sequence_length;         // default: the trained context, at most kDefaultSequenceLimit
  std::optional<std::int64_t> target_sequence_length;  // seq2seq; default: the sequence length
  std::optional<std::int64_t> image_size;              // image models; default: the trained size, else 224
  std::optional<Precision> precision;                  // default fp32, or the 16-bit type of weights_dtype
  std::optional<DType> mixed_precision;                // in precision's place: this type as the framework mixes it
  std::optional<DType> weights_dtype;
  std::optional<Loop> loop;                        // default trainer; images: bare
  std::optional<Optimizer> optimizer;              // default: trainer adamw-fused, bare adamw (foreach)
  std::optional<Attention> attention;              // default sdpa, where the model has it
  std::optional<Checkpointing> checkpointing;      // default none
  std::optional<std::int64_t> checkpoint_every;    // default 1
  std::optional<bool> reentrant;                   // default: as the versions do where nothing is said
  std::optional<std::int64_t> accumulation_steps;  // default 1
  std::optional<double> max_grad_norm;             // 0 switches clipping off; default: trainer 1.0, bare off
  bool offload_activations = false;
  bool expandable_segments = false;
  bool compile = false;
  std::optional<Float8> float8;                 // default none
  std::optional<CompiledParts> compiled_parts;  // default model, on several GPUs layers
  std::optional<CompileMode> compile_mode;      // default default
  bool offload_optimizer = false;
  bool offload_gradients = false;
  bool optimizer_in_backward = false;
  std::optional<std::int64_t> dataloader_workers;  // default 0
  std::optional<std::int64_t> prefetch_factor;     // default 2; only with workers
  bool pin_memory = false;                         // the Trainer always does
  bool loss_in_loop = false;
  bool use_cache = false;
  bool padding = false;
  bool float32_head = false;                      // of GRPO
  std::optional<double> dropout;                  // default: the model's own
  std::optional<std::int64_t> completion_length;  // of trainers on answers; default: half of the sequence
  std::optional<SftLoss> sft_loss;                // default nll
  std::optional<KtoLoss> kto_loss;                // default kto
  bool whole_logits = false;
  bool router_loss = false;                          // the Trainer: the config's output_router_logits
  bool no_router_loss = false;                       // default: mixtures of experts under TRL balance their experts
  std::optional<Reference> reference;                // default: TRL's
  std::optional<VllmMode> vllm;                      // of trainers that generate; default: transformers generates
  std::optional<double> vllm_utilization;            // colocated; default 0.3
  bool vllm_sleep = false;                           // colocated
  std::optional<std::int64_t> vllm_max_length;       // colocated; default: the model's context
  std::optional<VllmCorrection> vllm_correction;     // of GRPO with vLLM; default sequence_mask
  std::optional<std::int64_t> steps_per_generation;  // of GRPO and RLOO; default: the accumulation steps
  std::optional<std::int64_t> iterations;            // of GRPO and RLOO; default 1
  std::optional<std::int64_t> generations;           // of these with lengths; default 8
  std::optional<GrpoLoss> grpo_loss;                 // default dapo
  std::optional<ImportanceLevel> importance_level;   // of GRPO; default token
  bool label_smoothing = false;
  Stages stages = Stages::kTrain;
  std::optional<ModelLoading> loading;  // default config; of a packed base device-map
  ModelSaving saving = ModelSaving::kNone;
  std::optional<std::string> lengths;               // default: every sequence has sequence_length tokens
  std::optional<std::int64_t> steps;                // beside lengths; default: one epoch
  std::optional<PackingStrategy> packing;           // beside lengths; default: a row is a sample
  bool padding_free = false;                        // beside lengths
  bool group_by_length = false;                     // beside lengths
  std::optional<std::int64_t> pad_to_multiple_of;   // beside lengths; default: 1
  std::optional<std::int64_t> seed;                 // beside lengths; default: 42
  std::optional<ContrastiveLoss> contrastive_loss;  // of SentenceTransformerTrainer; default mnrl
  std::optional<std::int64_t> mini_batch_size;      // of cached-mnrl; default 32
  std::optional<std::int64_t> hard_negatives;       // of SentenceTransformerTrainer; default 0
  std::optional<std::int64_t> eval_batch_size;      // default: no evaluation
  std::optional<std::int64_t> eval_samples;         // default: four batches
  std::optional<std::int64_t> eval_accumulation;    // default: what is kept goes to the host at the end
  bool eval_logits = false;
  bool no_eval_labels = false;
  std::optional<std::int64_t> eval_new_tokens;  // default: the evaluation generates nothing
  std::optional<std::int64_t> eval_beams;       // default 1
  std::optional<std::int64_t> skipped_steps;    // default 0

  std::optional<std::int64_t> lora_rank;     // default: no adapters
  std::vector<std::string> lora_targets;     // default: every linear layer but a head of words
  std::vector<std::string> lora_saved;       // default: no module is trained in full
  std::optional<double> lora_dropout;        // default 0, peft's
  bool dora = false;                         // peft's use_dora
  bool lora_in_base_dtype = false;           // default: peft turns 16-bit adapters into float32
  bool lora_trains_head = false;             // peft's task_type: a classifier is trained in full instead of adapted
  std::optional<Quantization> quantization;  // default none
  std::int64_t blocks_to_swap = 0;
  std::optional<std::int64_t> group_size;  // default 128; GPTQ and AWQ only
  bool packs_head = false;
  bool packs_experts = false;
  std::optional<DType> quant_storage;
  std::optional<bool> prepares_for_kbit;  // default: where a quantised base gets adapters
  std::vector<std::string> frozen;        // default: nothing
  bool liger = false;
  bool cut_cross_entropy = false;
  bool unsloth = false;
  std::optional<Inference> inference;  // default: training

  std::optional<std::int64_t> gpus;    // default: tp x cp x pp
  std::optional<Framework> framework;  // default: whose the data-parallel mode is
  Parallel parallel;                   // what every layout has; its gpus and layout follow from the rest
  bool data_parallel_given = false;    // its data_parallel was said, also where it is none
  TorchMesh torch;                     // of the next three the framework's own becomes the layout
  DeepSpeedZero deepspeed;             // --deepspeed
  DeepSpeedSizes deepspeed_sizes;      // and of it what has other defaults in the Trainer
  MegatronLayout megatron;             // --megatron

  Profile profile;  // Profiles::choose() of what was asked
};

/// A default sequence is never longer: nobody fine-tunes at 131072 tokens by accident.
inline constexpr std::int64_t kDefaultSequenceLimit = 2048;

struct ResolvedRun {
  RunSpec run;
  std::vector<std::string> assumptions;  // one sentence for each default that shapes the answer
  bool halves_completions = false;       // nobody said how much of a sequence is the answer: half, however long it is
};

/// Fills the defaults and validates (spec/validate.h). Throws Error(kUsage) as validate() does.
[[nodiscard]] ResolvedRun resolve(const ModelSpec& model, const RunOptions& options);

}  // namespace memcalc
