// What a DeepSpeed run is told beside its ZeRO stage: --deepspeed, a list of names of its configuration's
// "zero_optimization" (deepspeed/runtime/zero/config.py, 0.19.8), as "reduce_bucket_size=5e7,overlap_comm=true".
// Its rows in run_fields_table.cc read them. Covered by tests/unit/run_fields_test.cc.
// MIRRORS(deepspeed, "runtime/zero/config.py", "0.19.8")
#pragma once

#include <cstdint>
#include <optional>

namespace memcalc {

/// Sizes in elements. Defaults are DeepSpeed's.
struct DeepSpeedZero {
  std::int64_t reduce_bucket_size = 500'000'000;
  std::optional<bool> overlap_comm;  // absent: in stage 3 alone
  std::int64_t sub_group_size = 1'000'000'000;
  std::int64_t prefetch_bucket_size = 50'000'000;      // stage3_prefetch_bucket_size
  std::int64_t param_persistence_threshold = 100'000;  // stage3_param_persistence_threshold
  std::int64_t max_live_parameters = 1'000'000'000;    // stage3_max_live_parameters
  std::int64_t max_reuse_distance = 1'000'000'000;     // stage3_max_reuse_distance

  // Of the engine of a second model (trl's prepare_deepspeed): made before the Trainer turns "auto" into sizes, which
  // DeepSpeed takes for its defaults.
  std::int64_t prefetch_bucket_size_of_reference = 50'000'000;
  std::int64_t param_persistence_threshold_of_reference = 100'000;

  [[nodiscard]] bool operator==(const DeepSpeedZero&) const = default;
};

/// Of these what was asked for. Of the others a resolved run has DeepSpeed's defaults or, in the Trainer, what its
/// "auto" makes of the model's width (resolve_zero_sizes, parallel.h).
struct DeepSpeedSizes {
  std::optional<std::int64_t> reduce_bucket_size;
  std::optional<std::int64_t> prefetch_bucket_size;
  std::optional<std::int64_t> param_persistence_threshold;

  [[nodiscard]] bool operator==(const DeepSpeedSizes&) const = default;
};

}  // namespace memcalc
