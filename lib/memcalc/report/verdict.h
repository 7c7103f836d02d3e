// Whether a run fits a card: the one rule, for every answer. Covered by tests/unit/verdict_test.cc.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// kTooClose: within the error of such predictions and of what is assumed of the card, either may happen.
enum class Verdict : std::uint8_t { kFits, kTooClose, kDoesNotFit };
inline constexpr std::array<std::string_view, 3> kVerdictNames = {"fits", "too-close", "does-not-fit"};

[[nodiscard]] constexpr std::string_view name_of(Verdict verdict) {
  return kVerdictNames[static_cast<std::size_t>(verdict)];
}

/// needed + error <= usable: fits; needed - error > usable: does not; else too close to call.
[[nodiscard]] constexpr Verdict verdict_of(Bytes needed, Bytes error, Bytes usable) {
  if (needed + error <= usable) return Verdict::kFits;
  return needed - error > usable ? Verdict::kDoesNotFit : Verdict::kTooClose;
}

/// How far what is needed may be off, either way: the error of reserved memory in measured runs of this kind, and
/// `assumed`, that of the context and of NCCL where they are assumed.
[[nodiscard]] Bytes error_of(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, Bytes reserved,
                             Bytes assumed);

}  // namespace memcalc
