// Behaviors: what differs between versions of the frameworks, each choice with a name. Rules fork on a behaviour, never
// on a version; which release has which is data (specs/profiles/, profiles.h). What a member holds here is the
// behaviour of the versions that memcalc answers for where none is named: torch 2.11.0, transformers 5.17.0,
// accelerate 1.15.0, peft 0.21.2, trl 1.16.0, bitsandbytes 0.50.2, liger-kernel 0.8.5. docs/studies/versions.md: where
// each stands in the sources. Covered by tests/unit/profiles_test.cc.
// MIRRORS(accelerate, "utils/fsdp_utils.py", "1.15.0")
// MIRRORS(torch, "aten/src/ATen/native/transformers/cuda/sdp_utils.cpp", "2.11.0")
// MIRRORS(transformers, "integrations/moe.py", "5.17.0")
// MIRRORS(transformers, "integrations/sdpa_attention.py", "5.17.0")
// MIRRORS(transformers, "models/gpt2/modeling_gpt2.py", "5.17.0")
// MIRRORS(transformers, "models/t5/modeling_t5.py", "5.17.0")
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "memcalc/spec/behavior_choice.h"

namespace memcalc {

/// Whose versions a profile knows.
enum class Software : std::uint8_t { kTorch, kTransformers, kAccelerate, kPeft, kTrl, kBitsandbytes, kLigerKernel };
inline constexpr std::size_t kSoftwareCount = 7;
/// As pip calls them: "torch", "transformers", …
inline constexpr std::string_view kSoftwareNames[] = {"torch", "transformers", "accelerate",  "peft",
                                                      "trl",   "bitsandbytes", "liger-kernel"};

/// On which cards scaled_dot_product_attention tries cuDNN before the flash kernel.
/// aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, check_prefer_cudnn_attention
enum class CudnnAttention : std::uint8_t { kNowhere, kHopperAndB200, kAndB300 };

/// How a layer of experts multiplies. transformers/integrations/moe.py, grouped_mm_experts_forward; before 5.0
/// each model's own loop over nn.Linear modules.
enum class ExpertForm : std::uint8_t { kLoop, kArgsort, kMaskedInPlace, kMaskedByCopies, kUnmasked };

/// What GPT2Attention registers beside its weights. transformers/models/gpt2/modeling_gpt2.py
enum class Gpt2Buffers : std::uint8_t { kNone, kMask, kMaskAndScalar };

/// T5Attention. transformers/models/t5/modeling_t5.py, integrations/sdpa_attention.py (create_position_bias_mask)
enum class T5Attention : std::uint8_t { kEager, kSdpa, kSdpaContiguous };

/// What turns float32 in FSDP2 with mixed precision: accelerate/utils/fsdp_utils.py, end of fsdp2_prepare_model (1.12:
/// the whole sharded model; 1.13: nothing, `param = param.to(…)` binds a local name; from 1.14 on what trains, before
/// it is sharded).
enum class Fsdp2Upcast : std::uint8_t { kAllShards, kNothing, kTrainable };

/// How peft adds the adapter of experts whose matrices are one parameter: tuners/lora/layer.py, ParamWrapper. As made:
/// 0.18 takes a parameter's second size for what goes in, however it is laid out, and adds each time that it is read;
/// as a whole: the adapter is made a tensor of the parameter's shape; as factors: torch.baddbmm.
enum class ExpertAdapters : std::uint8_t { kAsMade, kWhole, kFactors };

/// Which names of a transformers 4 module peft turns into a parameter of transformers 5: none; those of a list;
/// "all-linear", too. utils/transformers_weight_conversion.py, _convert_peft_config_moe
enum class ConvertedNames : std::uint8_t { kNone, kListed, kAll };

/// The loss of TRL's SFTTrainer where nothing is said.
enum class SftLossForm : std::uint8_t {
  kLogits,                      // of the model's logits
  kCheckpointedChunks,          // 256 of the tokens that have a label at a time, each under a checkpoint
  kFusedHead,                   // in the head's own autograd function (add_fused_lm_head)
  kSortedChunks,                // chunks of all tokens, those that have a label first
  kChunksWithoutFloat32Copies,  // the same without float32 copies of states and weight
  kShiftedCopies,               // logits, shifted before the metrics look at them
  kShiftedViews,                // without copying them
};

/// How TRL's DPOTrainer, ORPOTrainer and KTOTrainer take each token's log-probability.
enum class PreferenceScores : std::uint8_t {
  kUnread,
  kLogitsOfPairs,  // of logits, a sequence at a time (selective_log_softmax); KTO's was not read
  kLogits,         // all three
  kFusedHead,      // in the head's own autograd function, ORPO's in a kernel that reads the logits
};

/// How Liger's fused loss adds a chunk's part to the gradient of the head's weight: a product as large as the weight
/// and a float32 copy of it; in place where that gradient is float32; in place for all 16-bit logits, and logits and
/// the input's gradient written where they stay. liger_kernel/ops/fused_linear_cross_entropy.py
enum class LigerLoss : std::uint8_t { kProducts, kFloat32InPlace, kInPlace };

/// Which CUDA cards have the larger default workspace of cuBLAS (symbolic/cublas_workspaces.h). From pytorch#175344 on,
/// merged after 2.11 was cut, Blackwell, too: not run on such a card.
enum class CublasWorkspace : std::uint8_t { kHopper, kHopperAndBlackwell };

/// With what a value of a behaviour was compared. Streams are storages of fake tensors, operator by operator, recorded
/// under that version without a card (docs/studies/versions.md).
enum class Evidence : std::uint8_t { kMeasured, kStreams, kSources };
inline constexpr std::string_view kEvidenceNames[] = {"measured", "recorded streams", "sources"};

struct Behaviors {
  // torch
  BehaviorChoice<CudnnAttention, "sdpa.prefers-cudnn"> cudnn_attention = CudnnAttention::kHopperAndB200;
  BehaviorChoice<CublasWorkspace, "cublas.workspace"> cublas_workspace = CublasWorkspace::kHopper;
  BehaviorChoice<bool, "indexing.open-slices"> open_slices_are_views = false;

  // transformers
  BehaviorChoice<bool, "masks.packed-check"> packed_check_keeps_mask = false;
  BehaviorChoice<bool, "masks.by-vmap"> masks_by_vmap = false;
  BehaviorChoice<bool, "masks.cache-positions"> cache_positions = false;
  BehaviorChoice<bool, "masks.all-by-sum"> all_by_sum = true;
  BehaviorChoice<bool, "masks.of-ones"> masks_of_ones = false;
  BehaviorChoice<bool, "bert.adds-positions-in-place"> adds_positions_in_place = false;
  BehaviorChoice<bool, "roberta.positions-twice"> roberta_positions_twice = false;
  BehaviorChoice<bool, "checkpointing.reentrant"> reentrant_checkpoints = false;
  BehaviorChoice<bool, "checkpointing.inside-hooks"> checkpoints_forward = false;
  BehaviorChoice<bool, "checkpointing.every-n"> checkpoints_every_nth = true;
  BehaviorChoice<bool, "gemma.caches-in-training"> gemma_caches_in_training = true;
  BehaviorChoice<bool, "gemma.scales-late"> gemma_scales_late = false;
  BehaviorChoice<bool, "gemma2.eager"> gemma2_eager = false;
  BehaviorChoice<bool, "gemma3.rotates-per-layer"> gemma3_rotates_per_layer = false;
  BehaviorChoice<bool, "rotary.two-buffers"> two_inverse_frequencies = true;
  BehaviorChoice<bool, "rotary.from-int"> inverse_frequencies_from_int = false;
  BehaviorChoice<bool, "rotary.by-matmul"> rotary_by_matmul = true;
  BehaviorChoice<bool, "opt.mask-of-ones"> opt_mask_of_ones = true;
  BehaviorChoice<bool, "vit.keeps-locals"> vit_keeps_locals = false;
  BehaviorChoice<bool, "clip.text-mask"> clip_text_mask = false;
  BehaviorChoice<bool, "clip.projects-last"> clip_projects_last = false;
  BehaviorChoice<bool, "whisper.projects-first"> whisper_projects_first = false;
  BehaviorChoice<bool, "electra.eager"> electra_eager = false;
  BehaviorChoice<bool, "t5.masks-of-ones"> t5_masks_of_ones = false;
  BehaviorChoice<bool, "t5.ties-head"> t5_ties_head = true;
  BehaviorChoice<T5Attention, "t5.attention"> t5_attention = T5Attention::kSdpa;
  BehaviorChoice<ExpertForm, "experts.form"> experts = ExpertForm::kMaskedByCopies;
  BehaviorChoice<bool, "experts.qwen-float32"> qwen_routes_in_float32 = false;
  BehaviorChoice<bool, "experts.mixtral-rebinds"> mixtral_rebinds_logits = false;
  BehaviorChoice<bool, "deepseek.caches-latent"> deepseek_caches_latent = true;
  BehaviorChoice<Gpt2Buffers, "gpt2.buffers"> gpt2_buffers = Gpt2Buffers::kNone;
  BehaviorChoice<bool, "decoding.packs-queries"> decoding_packs_queries = false;
  BehaviorChoice<bool, "trainer.keeps-use-cache"> trainer_keeps_use_cache = false;
  BehaviorChoice<bool, "load.float32"> loads_in_float32 = false;
  BehaviorChoice<bool, "trainer.shifted-counts"> counts_shifted_labels = true;
  BehaviorChoice<bool, "trainer.decoder-counts"> decoders_alone_take_counts = false;
  BehaviorChoice<bool, "load.by-conversion"> loads_by_conversion = true;
  BehaviorChoice<bool, "trainer.drops-with-epoch"> drops_with_epoch = true;
  BehaviorChoice<bool, "compile.read"> compile_is_read = true;

  // accelerate
  BehaviorChoice<Fsdp2Upcast, "fsdp2.upcasts"> fsdp2_upcasts = Fsdp2Upcast::kTrainable;
  BehaviorChoice<bool, "fsdp2.wraps-ends"> fsdp2_wraps_ends = true;

  // peft
  BehaviorChoice<bool, "kbit.empties-cache"> kbit_empties_cache = true;
  BehaviorChoice<ExpertAdapters, "experts.adapters"> expert_adapters = ExpertAdapters::kFactors;
  BehaviorChoice<ConvertedNames, "experts.adapter-names"> converted_names = ConvertedNames::kAll;

  // trl
  BehaviorChoice<SftLossForm, "sft.loss"> sft_loss = SftLossForm::kFusedHead;
  BehaviorChoice<bool, "trl.trainers-read"> trl_trainers_are_read = true;
  BehaviorChoice<PreferenceScores, "preferences.scores"> preference_scores = PreferenceScores::kFusedHead;
  BehaviorChoice<bool, "trl.reference-as-policy"> reference_is_as_policy = true;
  BehaviorChoice<bool, "dora.casts-lengths"> casts_lengths = false;

  // bitsandbytes
  BehaviorChoice<bool, "nf4.keeps-inputs"> keeps_packed_inputs = false;

  // liger-kernel
  BehaviorChoice<LigerLoss, "liger.loss"> liger_loss = LigerLoss::kInPlace;

  friend constexpr bool operator==(const Behaviors&, const Behaviors&) = default;
};

/// A row a behaviour.
struct Behavior {
  std::string_view name;  // "masks.packed-check": in specs/profiles, in `memcalc upgrade`
  Software software = Software::kTorch;
  std::string_view meaning;                  // one line: what holds where the value is the last of `values`
  std::span<const std::string_view> values;  // in the order of the enumeration; "no", "yes" of a flag
  std::span<const Evidence> evidence;        // of each value
  std::string_view source;                   // the framework's file and the releases in which it was read
  std::uint8_t (*get)(const Behaviors& behaviors) = nullptr;
  void (*set)(Behaviors& behaviors, std::uint8_t value) = nullptr;
};

/// With what a behaviour was compared as `behaviors` have it.
[[nodiscard]] Evidence evidence_of(const Behavior& row, const Behaviors& behaviors);

/// All of them, those of a software together.
[[nodiscard]] std::span<const Behavior> behavior_table();

}  // namespace memcalc
