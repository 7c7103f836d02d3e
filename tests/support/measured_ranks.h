// What memcalc says of measured runs on several GPUs. Each rank of a run is a row; the run is asked about once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/report/report.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/json_node.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc::measured {

struct MeasuredRanks {
  JsonNode asked;  // what the row says of the run, and of nothing else
  JsonNode harness;
  RunSpec run;
  const DeviceSpec* device = nullptr;
  std::int64_t parameters_total = 0;
  std::vector<RankRow> ranks;
  std::size_t largest = 0;

  /// The row's own rank, by default the first; where there is none of the number, the one that takes most.
  [[nodiscard]] const RankRow& of(const JsonObject& row) const;
};

/// The answer to the row's question; lives as long as the process. Throws Error for a run that memcalc refuses.
[[nodiscard]] const MeasuredRanks& measured_ranks(const JsonObject& row);

}  // namespace memcalc::measured
