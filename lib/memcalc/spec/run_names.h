// The spellings of RunSpec's enumerations: one table each, used by the command line, the JSON and Python alike.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "memcalc/base/dtype.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

inline constexpr std::array<std::string_view, 8> kTaskNames = {"seqcls", "mlm",     "causal", "image",
                                                               "tokcls", "seq2seq", "speech", "custom"};
inline constexpr std::array<std::string_view, 6> kPrecisionNames = {"fp32",     "tf32", "amp-fp16",
                                                                    "amp-bf16", "bf16", "fp16"};
inline constexpr std::array<std::string_view, 2> kLoopNames = {"trainer", "bare"};
inline constexpr std::array<std::string_view, 3> kAttentionNames = {"sdpa", "eager", "flash"};
inline constexpr std::array<std::string_view, 2> kCheckpointingNames = {"none", "full"};
inline constexpr std::array<std::string_view, 5> kOptimizerNames = {"adamw", "adamw-fused", "adamw-for", "sgd", "sgdm"};
/// The dtypes that weights can have, in the order of DType.
inline constexpr std::array<std::string_view, 3> kWeightDTypeNames = {"fp32", "fp16", "bf16"};

inline constexpr std::array<std::string_view, 4> kQuantizationNames = {"none", "nf4", "nf4-double", "int8"};
inline constexpr std::array<std::string_view, 2> kAdapterDTypeNames = {"fp32", "base"};

[[nodiscard]] constexpr std::string_view name_of(Quantization v) {
  return kQuantizationNames[static_cast<std::size_t>(v)];
}
[[nodiscard]] constexpr std::string_view name_of(Task v) { return kTaskNames[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(Precision v) { return kPrecisionNames[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(Loop v) { return kLoopNames[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(Attention v) { return kAttentionNames[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(Checkpointing v) {
  return kCheckpointingNames[static_cast<std::size_t>(v)];
}
[[nodiscard]] constexpr std::string_view name_of(Optimizer v) { return kOptimizerNames[static_cast<std::size_t>(v)]; }

/// The enumerator whose name stands in `names`; absent where none does.
template <typename Enum, std::size_t kSize>
[[nodiscard]] constexpr std::optional<Enum> enum_from(const std::array<std::string_view, kSize>& names,
                                                      std::string_view text) {
  for (std::size_t i = 0; i < kSize; ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
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
