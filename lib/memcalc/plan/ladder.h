// The ladder: from the run as it was asked for, technique by technique, until it fits.
// Covered by tests/measured/plan_test.cc.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/plan/outcome.h"
#include "memcalc/plan/search_control.h"
#include "memcalc/report/answer.h"

namespace memcalc {

struct Rung {
  std::string technique;  // "checkpointing of every layer"
  std::string price;      // what it costs, in words
  RunSpec run;            // with this technique and those kept before it
  std::string command;    // that asks for this run: "memcalc --model gpt2 --bs 4 …"
  Outcome outcome;
  bool kept = false;  // needs less than the rung before it, so the next one stands on it
};

struct Ladder {
  std::string model;
  DeviceSpec device;
  std::vector<Rung> rungs;               // the first is the run as asked
  std::optional<std::size_t> first_fit;  // place in `rungs`
  bool complete = true;                  // false: stopped
  std::vector<std::string> assumptions;
};

/// Each technique is added to those that helped before; one that is not possible or not modelled for this run is a rung
/// with its reason. Ends at the first that fits, unless `all`. Throws what estimate() throws for the run as asked.
[[nodiscard]] Ladder climb(const ModelSpec& model, const ResolvedRun& run, const DeviceSpec& device, bool all = false,
                           const SearchControl& control = {});

[[nodiscard]] Answer answer_of(const Ladder& ladder);

}  // namespace memcalc
