// The ladder: from the run as it was asked for, technique by technique (technique.h), until it fits; and the smallest
// sets of techniques with which it does, as commands.
// Covered by tests/whole/ladder_test.cc and tests/whole/remedies_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/plan/outcome.h"
#include "memcalc/plan/search_control.h"
#include "memcalc/report/answer.h"
#include "memcalc/report/remedy.h"

namespace memcalc {

struct Rung {
  std::string technique;  // "checkpointing of every layer"
  std::string price;      // what it costs, in words
  RunSpec run;            // with this technique and those kept before it
  std::string command;    // that asks for this run: "memcalc --model gpt2 --bs 4 …"
  Outcome outcome;
  bool kept = false;  // needs less than what it was added to, so the next ones stand on it
};

struct Ladder {
  std::string model;
  DeviceSpec device;
  std::vector<Rung> rungs;               // the first is the run as asked
  std::optional<std::size_t> first_fit;  // place in `rungs`
  std::vector<Remedy> remedies;          // as remedies_for()
  bool all = false;                      // also beyond the first that fits
  std::int64_t refused = 0;              // techniques that the model, the framework or memcalc does not take
  bool complete = true;                  // false: stopped
  std::vector<std::string> assumptions;
};

/// Each technique is added to those that helped before; one that changes nothing or is refused is no rung. Ends at the
/// first that fits, unless `all`. What takes more of a host than `host` does not fit; no bytes: that limits nothing.
/// Throws what estimate() throws for the run as asked.
[[nodiscard]] Ladder climb(const ModelSpec& model, const ResolvedRun& run, const DeviceSpec& device, bool all = false,
                           const SearchControl& control = {}, const HostSize& host = {});

/// Up to three ways to make the run of a report fit: sets of techniques of which none can be left out, those that lose
/// least first, the faster ones before others that lose the same. Where nothing fits: the one that needs least. Empty
/// where the run fits.
[[nodiscard]] std::vector<Remedy> remedies_for(const Report& report, const SearchControl& control = {});

[[nodiscard]] Answer answer_of(const Ladder& ladder);

}  // namespace memcalc
