// How a row of the table reaches a member: put<&RunOptions::batch_size> sets what is asked, take<&RunSpec::batch_size>
// reads what ran. Enumerations go by their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "memcalc/spec/parallel_names.h"
#include "memcalc/spec/run_fields.h"
#include "memcalc/spec/run_names.h"

namespace memcalc::fields {

using Names = std::span<const std::string_view>;

// The names of an enumeration, in its order.
constexpr Names names_of(std::type_identity<Task> /*of*/) { return kTaskNames; }
constexpr Names names_of(std::type_identity<Precision> /*of*/) { return kPrecisionNames; }
constexpr Names names_of(std::type_identity<Loop> /*of*/) { return kLoopNames; }
constexpr Names names_of(std::type_identity<SftLoss> /*of*/) { return kSftLossNames; }
constexpr Names names_of(std::type_identity<KtoLoss> /*of*/) { return kKtoLossNames; }
constexpr Names names_of(std::type_identity<Reference> /*of*/) { return kReferenceNames; }
constexpr Names names_of(std::type_identity<VllmMode> /*of*/) { return kVllmModeNames; }
constexpr Names names_of(std::type_identity<GrpoLoss> /*of*/) { return kGrpoLossNames; }
constexpr Names names_of(std::type_identity<ImportanceLevel> /*of*/) { return kImportanceLevelNames; }
constexpr Names names_of(std::type_identity<VllmCorrection> /*of*/) { return kVllmCorrectionNames; }
constexpr Names names_of(std::type_identity<Stages> /*of*/) { return kStagesNames; }
constexpr Names names_of(std::type_identity<PackingStrategy> /*of*/) { return kPackingNames; }
constexpr Names names_of(std::type_identity<ContrastiveLoss> /*of*/) { return kContrastiveLossNames; }
constexpr Names names_of(std::type_identity<ModelLoading> /*of*/) { return kLoadingNames; }
constexpr Names names_of(std::type_identity<ModelSaving> /*of*/) { return kSavingNames; }
constexpr Names names_of(std::type_identity<Checkpointing> /*of*/) { return kCheckpointingNames; }
constexpr Names names_of(std::type_identity<Attention> /*of*/) { return kAttentionNames; }
constexpr Names names_of(std::type_identity<Optimizer> /*of*/) { return kOptimizerNames; }
constexpr Names names_of(std::type_identity<Float8> /*of*/) { return kFloat8Names; }
constexpr Names names_of(std::type_identity<CompiledParts> /*of*/) { return kCompiledPartsNames; }
constexpr Names names_of(std::type_identity<CompileMode> /*of*/) { return kCompileModeNames; }
constexpr Names names_of(std::type_identity<Quantization> /*of*/) { return kQuantizationNames; }
constexpr Names names_of(std::type_identity<DType> /*of*/) { return kWeightDTypeNames; }
constexpr Names names_of(std::type_identity<DataParallel> /*of*/) { return kDataParallelNames; }
constexpr Names names_of(std::type_identity<Framework> /*of*/) { return kFrameworkNames; }
constexpr Names names_of(std::type_identity<ContextParallel> /*of*/) { return kContextParallelNames; }
constexpr Names names_of(std::type_identity<PipelineSchedule> /*of*/) { return kScheduleNames; }
constexpr Names names_of(std::type_identity<OffloadTo> /*of*/) { return kOffloadNames; }

template <typename Member>
struct MemberOf;
template <typename Class, typename Value>
struct MemberOf<Value Class::*> {
  using ClassType = Class;
};

/// The part of a request that holds a class's members.
template <typename Class>
auto& part_of(RunRequest& request) {
  if constexpr (std::is_same_v<Class, RunRequest>) return request;
  if constexpr (std::is_same_v<Class, RunOptions>) return request.run;
  if constexpr (std::is_same_v<Class, Parallel>) return request.run.parallel;
  if constexpr (std::is_same_v<Class, TorchMesh>) return request.run.torch;
  if constexpr (std::is_same_v<Class, DeepSpeedZero>) return request.run.deepspeed;
  if constexpr (std::is_same_v<Class, DeepSpeedSizes>) return request.run.deepspeed_sizes;
  if constexpr (std::is_same_v<Class, MegatronLayout>) return request.run.megatron;
  if constexpr (std::is_same_v<Class, ArchitectureChanges>) return request.changes;
  if constexpr (std::is_same_v<Class, TimeOptions>) return request.time;
  if constexpr (std::is_same_v<Class, CardOptions>) return request.card;
  if constexpr (std::is_same_v<Class, Inference>) return request.inference;
}

/// The part of what ran; null: there is none.
template <typename Class>
const Class* part_of(const RunRecord& ran) {
  if constexpr (std::is_same_v<Class, RunSpec>) return &ran.run;
  if constexpr (std::is_same_v<Class, Parallel>) return &ran.run.parallel;
  if constexpr (std::is_same_v<Class, FineTuning>) return &ran.run.fine_tuning;
  if constexpr (std::is_same_v<Class, TorchMesh> || std::is_same_v<Class, DeepSpeedZero> ||
                std::is_same_v<Class, MegatronLayout>) {
    return std::get_if<Class>(&ran.run.parallel.layout);
  }
  if constexpr (std::is_same_v<Class, ArchitectureChanges>) return &ran.model.changes;
  if constexpr (std::is_same_v<Class, TimeOptions>) return ran.time;
  if constexpr (std::is_same_v<Class, Lora>) return ran.run.fine_tuning.lora ? &*ran.run.fine_tuning.lora : nullptr;
  if constexpr (std::is_same_v<Class, Inference>) return ran.run.inference();
  if constexpr (std::is_same_v<Class, Training>) return std::get_if<Training>(&ran.run.purpose);
}

template <typename Value>
bool assign(std::optional<Value>& place, const FieldValue& value);

template <typename Value>
bool assign(Value& place, const FieldValue& value) {
  if constexpr (std::is_enum_v<Value>) {
    const Names names = names_of(std::type_identity<Value>{});
    const std::string& name = std::get<std::string>(value);
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] != name) continue;
      place = static_cast<Value>(i);
      return true;
    }
    return false;
  } else {
    place = std::get<Value>(value);
    return true;
  }
}

template <typename Value>
bool assign(std::optional<Value>& place, const FieldValue& value) {
  return assign(place.emplace(), value);
}

template <auto kMember>
bool put(RunRequest& request, const FieldValue& value) {
  return assign(part_of<typename MemberOf<decltype(kMember)>::ClassType>(request).*kMember, value);
}

template <typename Value>
FieldValue named(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return std::string(names_of(std::type_identity<Value>{})[static_cast<std::size_t>(value)]);
  } else {
    return value;
  }
}

template <typename Value>
std::optional<FieldValue> read(const std::optional<Value>& value) {
  if (!value) return std::nullopt;
  return named(*value);
}
template <typename Value>
std::optional<FieldValue> read(const Value& value) {
  return named(value);
}

template <auto kMember>
std::optional<FieldValue> take(const RunRecord& ran) {
  const auto* part = part_of<typename MemberOf<decltype(kMember)>::ClassType>(ran);
  if (part == nullptr) return std::nullopt;
  return read(part->*kMember);
}

/// A number of which `kNone` means that there is none, a list that is empty, a text that is empty: nothing.
template <auto kMember, auto kNone>
std::optional<FieldValue> take_but(const RunRecord& ran) {
  const auto* part = part_of<typename MemberOf<decltype(kMember)>::ClassType>(ran);
  if (part == nullptr || part->*kMember == kNone) return std::nullopt;
  return read(part->*kMember);
}
template <auto kMember>
std::optional<FieldValue> take_filled(const RunRecord& ran) {
  const auto* part = part_of<typename MemberOf<decltype(kMember)>::ClassType>(ran);
  if (part == nullptr || (part->*kMember).empty()) return std::nullopt;
  return read(part->*kMember);
}

/// A flag that says the opposite of its member.
template <auto kMember>
bool put_not(RunRequest& request, const FieldValue& value) {
  return put<kMember>(request, !std::get<bool>(value));
}
template <auto kMember>
std::optional<FieldValue> take_not(const RunRecord& ran) {
  const auto value = take<kMember>(ran);
  if (!value) return std::nullopt;
  return !std::get<bool>(*value);
}

inline std::optional<FieldValue> nothing(const RunRecord& /*ran*/) { return std::nullopt; }

// --- what the files of rows share ---

inline constexpr double kMostWhole = 9.2e18;  // below 2^63
inline constexpr double kBelowOne = 0.9999999999999999;
inline constexpr std::string_view kProbability = "a number from 0 to less than 1";

inline bool has_stages(const RunRecord& r) { return r.run.parallel.pipeline > 1; }
inline bool is_megatron(const RunRecord& r) { return r.run.parallel.framework() == Framework::kMegatron; }
inline bool is_deepspeed(const RunRecord& r) { return r.run.parallel.framework() == Framework::kDeepSpeed; }

/// What only some rows say.
struct More {
  std::span<const std::string_view> names = {};
  std::string_view unit = {};
  double least = 1;
  double most = kMostWhole;
  std::string_view accepted = {};
  std::string_view negative = {};
  std::string_view negative_help = {};
  bool (*set)(RunRequest&, const FieldValue&) = nullptr;
  std::optional<FieldValue> (*get)(const RunRecord&) = nullptr;
  bool (*exists)(const RunRecord&) = nullptr;
  std::string_view belongs_to = {};
};

constexpr Field row(std::string_view flag, std::string_view key, FieldGroup group, FieldType type,
                    std::string_view value, std::string_view help, const More& more) {
  return {flag,
          key,
          group,
          type,
          value,
          help,
          more.names,
          more.unit,
          more.least,
          more.most,
          more.accepted,
          more.negative,
          more.negative_help,
          more.set,
          more.get,
          more.exists,
          more.belongs_to};
}

}  // namespace memcalc::fields
