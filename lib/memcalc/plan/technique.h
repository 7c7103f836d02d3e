// Technique: one thing that a person changes about a run so that it needs less memory. The table of them is the order
// in which ladder.h tries them: by what is lost, the least first.
// Covered by tests/whole/ladder_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// What a technique takes from its user; the dearest last.
enum class Loss : std::uint8_t {
  kTime,    // the same mathematics, at most slower
  kDigits,  // numbers are rounded
  kScope,   // less is trained, or less is read
  kHost,    // copies between the card and the host in every step
  kCards,   // more cards
};

/// The set of techniques that another one is added to. kRun: the run as asked, trained or called in the same way.
enum class Branch : std::uint8_t { kRun, kLora, kQlora, kHost, kShards };
inline constexpr std::size_t kBranchCount = 5;

/// What a technique looks at beside the run that it changes.
struct TechniqueQuestion {
  const ModelSpec& model;
  const RunSpec& asked;
  const DeviceSpec& device;
};

struct Technique {
  std::string_view name;   // {}: what `figure` says
  std::string_view price;  // what it costs, in words; the same
  Loss loss = Loss::kTime;
  /// Changes the run; false where it is there already, has nothing to change, or the card has no such thing. What a
  /// model or a framework refuses is left to the rules. `grade`: 1; of a graded one how often it is applied.
  bool (*apply)(RunSpec& run, const TechniqueQuestion& question, int grade) = nullptr;
  std::string (*figure)(const RunSpec& run) = nullptr;
  /// What else it costs this model, a clause; empty: nothing.
  std::string (*beside)(const RunSpec& run, const TechniqueQuestion& question) = nullptr;
  Branch from = Branch::kRun;
  Branch to = Branch::kRun;
  bool graded = false;    // batches by halves, cards by doubles: as often as is needed
  bool required = false;  // without it the card does not run this at all
};

/// All, sorted by their loss.
[[nodiscard]] std::span<const Technique> techniques();

/// Compute capability 8.0 on; other makers by their datasheet.
[[nodiscard]] bool takes_bfloat16(const DeviceSpec& device);

/// nn.BatchNorm, whose statistics are of a micro-batch.
[[nodiscard]] bool has_batch_norm(const ModelSpec& model);

}  // namespace memcalc
