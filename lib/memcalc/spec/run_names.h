// The spellings of RunSpec's enumerations: one table each, used by the command line, the JSON and Python alike.
// MIRRORS(transformers, "training_args.py", "5.17.0")
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "memcalc/base/dtype.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

inline constexpr std::array<std::string_view, 11> kTaskNames = {
    "seqcls", "mlm", "causal", "image", "tokcls", "seq2seq", "speech", "custom", "contrastive", "features", "qa"};
inline constexpr std::array<std::string_view, 6> kPrecisionNames = {"fp32",     "tf32", "amp-fp16",
                                                                    "amp-bf16", "bf16", "fp16"};
inline constexpr std::array<std::string_view, 12> kLoopNames = {"trainer",       "bare",       "trl-sft",
                                                                "trl-dpo",       "trl-kto",    "trl-grpo",
                                                                "trl-rloo",      "trl-reward", "sentence-transformer",
                                                                "cross-encoder", "trl-orpo",   "trl-online-dpo"};
/// As a report names them.
inline constexpr std::array<std::string_view, kLoopNames.size()> kLoopTitles = {
    "HF Trainer",          "plain loop",        "TRL SFTTrainer",
    "TRL DPOTrainer",      "TRL KTOTrainer",    "TRL GRPOTrainer",
    "TRL RLOOTrainer",     "TRL RewardTrainer", "SentenceTransformerTrainer",
    "CrossEncoderTrainer", "TRL ORPOTrainer",   "TRL OnlineDPOTrainer"};
inline constexpr std::array<std::string_view, 4> kReferenceNames = {"none", "own", "adapters", "precomputed"};
inline constexpr std::array<std::string_view, 2> kSftLossNames = {"nll", "dft"};
inline constexpr std::array<std::string_view, 2> kKtoLossNames = {"kto", "apo_zero_unpaired"};
inline constexpr std::array<std::string_view, 8> kGrpoLossNames = {"grpo",  "bnpo", "dr_grpo", "dapo",
                                                                   "cispo", "sapo", "luspo",   "vespo"};
inline constexpr std::array<std::string_view, 2> kImportanceLevelNames = {"token", "sequence"};
inline constexpr std::array<std::string_view, 5> kVllmCorrectionNames = {"none", "sequence_mask", "token_mask",
                                                                         "sequence_truncate", "token_truncate"};
inline constexpr std::array<std::string_view, 3> kVllmModeNames = {"none", "colocate", "server"};
inline constexpr std::array<std::string_view, 3> kPackingNames = {"bfd", "bfd_split", "wrapped"};
inline constexpr std::array<std::string_view, 2> kContrastiveLossNames = {"mnrl", "cached-mnrl"};
inline constexpr std::array<std::string_view, 2> kStagesNames = {"train", "all"};
inline constexpr std::array<std::string_view, 4> kLoadingNames = {"config", "device-map", "host", "rank0"};
inline constexpr std::array<std::string_view, 5> kSavingNames = {"none", "checkpoint", "merge", "full", "sharded"};
inline constexpr std::array<std::string_view, 3> kAttentionNames = {"sdpa", "eager", "flash"};
inline constexpr std::array<std::string_view, 3> kCheckpointingNames = {"none", "full", "selective"};
inline constexpr std::array<std::string_view, 4> kFloat8Names = {"none", "tensorwise", "tensorwise-gather", "rowwise"};
inline constexpr std::array<std::string_view, 3> kCompiledPartsNames = {"model", "layers", "layers-loss"};
inline constexpr std::array<std::string_view, 2> kCompileModeNames = {"default", "reduce-overhead"};
inline constexpr std::array<std::string_view, kOptimizerCount> kOptimizerNames = {"adamw",
                                                                                  "adamw-fused",
                                                                                  "adamw-for",
                                                                                  "sgd",
                                                                                  "sgdm",
                                                                                  "sgd-wd",
                                                                                  "adam",
                                                                                  "adamw-amsgrad",
                                                                                  "nadam",
                                                                                  "radam",
                                                                                  "adamax",
                                                                                  "adagrad",
                                                                                  "adagrad-for",
                                                                                  "rmsprop",
                                                                                  "adafactor",
                                                                                  "adafactor-hf-relative",
                                                                                  "adafactor-torch",
                                                                                  "muon",
                                                                                  "adamw-bnb",
                                                                                  "adamw-8bit",
                                                                                  "paged-adamw",
                                                                                  "paged-adamw-8bit",
                                                                                  "lion",
                                                                                  "lion-8bit",
                                                                                  "paged-lion",
                                                                                  "paged-lion-8bit",
                                                                                  "rmsprop-bnb",
                                                                                  "rmsprop-8bit",
                                                                                  "sgdm-8bit",
                                                                                  "ademamix",
                                                                                  "ademamix-8bit",
                                                                                  "paged-ademamix",
                                                                                  "paged-ademamix-8bit",
                                                                                  "adamw-torch-8bit",
                                                                                  "adamw-torch-4bit"};

/// A value of transformers' TrainingArguments.optim (training_args.py, OptimizerNames) and what it stands for.
struct TrainerOptimizer {
  std::string_view name;
  Optimizer optimizer;
};
inline constexpr TrainerOptimizer kTrainerOptimizers[] = {
    {"adamw_torch", Optimizer::kAdamWForeach},
    {"adamw_torch_fused", Optimizer::kAdamWFused},
    {"adafactor", Optimizer::kAdafactor},
    {"sgd", Optimizer::kSgd},
    {"adagrad", Optimizer::kAdagrad},
    {"rmsprop", Optimizer::kRmsprop},
    {"adamw_bnb_8bit", Optimizer::kAdamW8bit},
    {"adamw_8bit", Optimizer::kAdamW8bit},
    {"paged_adamw_32bit", Optimizer::kPagedAdamW},
    {"paged_adamw_8bit", Optimizer::kPagedAdamW8bit},
    {"lion_32bit", Optimizer::kLion},
    {"lion_8bit", Optimizer::kLion8bit},
    {"paged_lion_32bit", Optimizer::kPagedLion},
    {"paged_lion_8bit", Optimizer::kPagedLion8bit},
    {"rmsprop_bnb", Optimizer::kRmspropBnb},
    {"rmsprop_bnb_32bit", Optimizer::kRmspropBnb},
    {"rmsprop_bnb_8bit", Optimizer::kRmsprop8bit},
    {"ademamix", Optimizer::kAdEMAMix},
    {"ademamix_8bit", Optimizer::kAdEMAMix8bit},
    {"paged_ademamix_32bit", Optimizer::kPagedAdEMAMix},
    {"paged_ademamix_8bit", Optimizer::kPagedAdEMAMix8bit},
    {"adamw_torch_8bit", Optimizer::kAdamWTorchao8bit},
    {"adamw_torch_4bit", Optimizer::kAdamWTorchao4bit},
};
/// The dtypes that weights can have, in the order of DType.
inline constexpr std::array<std::string_view, 3> kWeightDTypeNames = {"fp32", "fp16", "bf16"};

inline constexpr std::array<std::string_view, 11> kQuantizationNames = {
    "none", "nf4", "nf4-double", "int8", "gptq4", "awq4", "mxfp4", "fp8", "gptq8", "fp8-cast", "fp8-scaled"};
inline constexpr std::array<std::string_view, 2> kAdapterDTypeNames = {"fp32", "base"};

[[nodiscard]] constexpr std::string_view name_of(Quantization v) {
  return kQuantizationNames[static_cast<std::size_t>(v)];
}
[[nodiscard]] constexpr std::string_view name_of(Task v) { return kTaskNames[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(Precision v) { return kPrecisionNames[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(Loop v) { return kLoopNames[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view title_of(Loop v) { return kLoopTitles[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(SftLoss v) { return kSftLossNames[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(KtoLoss v) { return kKtoLossNames[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(Reference v) { return kReferenceNames[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(GrpoLoss v) { return kGrpoLossNames[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(ImportanceLevel v) {
  return kImportanceLevelNames[static_cast<std::size_t>(v)];
}
[[nodiscard]] constexpr std::string_view name_of(VllmCorrection v) {
  return kVllmCorrectionNames[static_cast<std::size_t>(v)];
}
[[nodiscard]] constexpr std::string_view name_of(VllmMode v) { return kVllmModeNames[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(PackingStrategy v) {
  return kPackingNames[static_cast<std::size_t>(v)];
}
[[nodiscard]] constexpr std::string_view name_of(ContrastiveLoss v) {
  return kContrastiveLossNames[static_cast<std::size_t>(v)];
}
[[nodiscard]] constexpr std::string_view name_of(Stages v) { return kStagesNames[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(ModelLoading v) { return kLoadingNames[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(ModelSaving v) { return kSavingNames[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(Attention v) { return kAttentionNames[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(Checkpointing v) {
  return kCheckpointingNames[static_cast<std::size_t>(v)];
}
[[nodiscard]] constexpr std::string_view name_of(Float8 v) { return kFloat8Names[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(CompiledParts v) {
  return kCompiledPartsNames[static_cast<std::size_t>(v)];
}
[[nodiscard]] constexpr std::string_view name_of(CompileMode v) {
  return kCompileModeNames[static_cast<std::size_t>(v)];
}
[[nodiscard]] constexpr std::string_view name_of(Optimizer v) { return kOptimizerNames[static_cast<std::size_t>(v)]; }

/// "none", "full", "every-2", "selective".
[[nodiscard]] inline std::string checkpointing_of(const RunSpec& run) {
  if (run.checkpointing() == Checkpointing::kFull && run.training().checkpoint_every > 1) {
    return "every-" + std::to_string(run.training().checkpoint_every);
  }
  return std::string(name_of(run.checkpointing()));
}

/// The enumerator whose name stands in `names`; absent where none does.
template <typename Enum, std::size_t kSize>
[[nodiscard]] constexpr std::optional<Enum> enum_from(const std::array<std::string_view, kSize>& names,
                                                      std::string_view text) {
  for (std::size_t i = 0; i < kSize; ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

/// By memcalc's name or transformers'.
[[nodiscard]] constexpr std::optional<Optimizer> optimizer_from(std::string_view text) {
  for (const TrainerOptimizer& each : kTrainerOptimizers) {
    if (each.name == text) return each.optimizer;
  }
  return enum_from<Optimizer>(kOptimizerNames, text);
}

/// transformers' Trainer has a name for it.
[[nodiscard]] constexpr bool has_trainer_name(Optimizer optimizer) {
  for (const TrainerOptimizer& each : kTrainerOptimizers) {
    if (each.optimizer == optimizer) return true;
  }
  return false;
}

/// autocast is on: 16-bit copies of float32 weights exist during a step.
[[nodiscard]] constexpr bool is_autocast(Precision precision) {
  return precision == Precision::kAmpFp16 || precision == Precision::kAmpBf16;
}

/// The dtype in which the module holds its weights.
[[nodiscard]] constexpr DType weights_dtype_of(const RunSpec& run) {
  if (run.weights_dtype) return *run.weights_dtype;
  if (run.precision == Precision::kBf16) return DType::kBFloat16;
  if (run.precision == Precision::kFp16) return DType::kFloat16;
  return DType::kFloat32;
}

}  // namespace memcalc
