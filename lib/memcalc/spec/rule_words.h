// Words that rules have in common: of the model, of the run, of whose modules run. All are cheap: rules are looked at
// for each candidate of the planner.
#pragma once

#include <string>
#include <string_view>

#include "memcalc/spec/family.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/rules.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {

// --- the model
/// What its family's record says; false where the model has no family.
[[nodiscard]] inline bool has(const RuleQuestion& q, bool Family::*capability) {
  const Family* const family = family_of(q.model);
  return family != nullptr && family->*capability;
}

// --- the run
[[nodiscard]] inline bool trains(const RuleQuestion& q) { return q.run.trains(); }
/// Of a run that trains: a group of rules that asks it concerns no other.
[[nodiscard]] inline const Training& training_of(const RuleQuestion& q) { return q.run.training(); }
[[nodiscard]] inline bool is_causal(const RuleQuestion& q) { return q.run.task == Task::kCausalLm; }
[[nodiscard]] inline bool checkpoints(const RuleQuestion& q) { return q.run.checkpointing() != Checkpointing::kNone; }
[[nodiscard]] inline bool quantizes(const RuleQuestion& q) {
  return q.run.fine_tuning.quantization != Quantization::kNone;
}
[[nodiscard]] inline bool has_liger(const RuleQuestion& q) { return q.run.fine_tuning.liger; }
[[nodiscard]] inline bool cuts_cross_entropy(const RuleQuestion& q) { return q.run.fine_tuning.cut_cross_entropy; }
[[nodiscard]] inline bool has_unsloth(const RuleQuestion& q) { return q.run.fine_tuning.unsloth; }
[[nodiscard]] inline bool has_adapters(const RuleQuestion& q) { return q.run.fine_tuning.lora.has_value(); }

// --- several GPUs
[[nodiscard]] inline bool is_parallel(const RuleQuestion& q) { return q.parallel.is_parallel(); }
[[nodiscard]] inline bool is_torch(const RuleQuestion& q) { return q.parallel.framework() == Framework::kTorch; }
[[nodiscard]] inline bool is_deepspeed(const RuleQuestion& q) {
  return q.parallel.framework() == Framework::kDeepSpeed;
}
[[nodiscard]] inline bool is_megatron(const RuleQuestion& q) { return q.parallel.framework() == Framework::kMegatron; }
/// Null: one GPU, or another framework.
[[nodiscard]] inline const TorchMesh* mesh_of(const RuleQuestion& q) {
  return std::get_if<TorchMesh>(&q.parallel.layout);
}
[[nodiscard]] inline bool is_fsdp(const RuleQuestion& q) {
  return q.parallel.data_parallel == DataParallel::kFsdp1 || q.parallel.data_parallel == DataParallel::kFsdp2;
}

/// Of `detail`: "bf16", as an option takes it.
[[nodiscard]] inline std::string typed(DType type) {
  const auto place = static_cast<std::size_t>(type);
  return std::string(place < kWeightDTypeNames.size() ? kWeightDTypeNames[place] : name_of(type));
}

}  // namespace memcalc
