// The largest batch, sequence or model that a card takes, found on the simulated peak (reserved memory and context).
// Covered by tests/unit/largest_test.cc; measured on the card: docs/validation.md, "The largest batch".
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/plan/search_control.h"
#include "memcalc/report/answer.h"

namespace memcalc {

/// What is varied; the rest of the run stays.
enum class Measure : std::uint8_t { kBatch, kSequence };

struct LargestOptions {
  Measure measure = Measure::kBatch;
  std::int64_t multiple_of = 1;                // only these values are asked for
  std::int64_t limit = std::int64_t{1} << 20;  // never asked beyond
  std::int64_t neighbours = 8;  // values on either side of the answer that are asked too, for what is not monotone
  HostSize host{};              // what takes more of a host than this does not run; no bytes: it limits nothing
};

/// One value that was asked for.
struct Probe {
  std::int64_t value = 0;
  Bytes allocated = 0;  // peaks
  Bytes reserved = 0;
  Bytes needed = 0;                        // reserved + context + kernels, where the card's are known
  Verdict verdict = Verdict::kDoesNotFit;  // of needed
  bool runs = false;         // fits, or runs since the allocator gives its free segments back and asks again
  std::int64_t retries = 0;  // of the allocator, in three steps
};

struct Largest {
  std::string model;
  DeviceSpec device;
  LargestOptions options;
  std::string refusal;         // of one of several: why there is no estimate; the rest is then empty
  bool own_fault = false;      // Refusal::own_fault
  RunSpec run;                 // of the answer; of the smallest value where none runs
  std::int64_t value = 0;      // the largest that runs at all; 0: not even the smallest
  std::int64_t unhurried = 0;  // the largest that fits without a retry of the allocator: the answer
  std::int64_t trained = 0;    // tokens of the sequences it was trained with; 0: none, or asked for the batch
  std::string unanswered;      // why nothing larger was asked for, where a rule's limit ended the search
  bool at_limit = false;       // the search ended at `limit` or at the model's last position
  std::vector<Probe> probes;   // by value
  std::vector<std::int64_t> larger_that_run;    // beyond `value`, among the probes: the peak is not monotone
  std::vector<std::int64_t> smaller_that_fail;  // below it
  std::optional<std::int64_t> drop;             // a value that needs less than the probe before it
  bool complete = true;                         // false: stopped; `value` is the best so far
  std::vector<std::string> assumptions;
  std::vector<std::string> not_modelled;

  /// The probe of a value that was asked for; null otherwise.
  [[nodiscard]] const Probe* probe_of(std::int64_t asked) const;
};

/// Throws Error(kUsage) where the run has no such measure (a sequence of images) and what estimate() throws for the
/// smallest value.
[[nodiscard]] Largest find_largest(const ModelSpec& model, const ResolvedRun& run, const DeviceSpec& device,
                                   const LargestOptions& options, const SearchControl& control = {});

/// The largest batch or sequence as a command's answer.
[[nodiscard]] Answer answer_of(const Largest& largest);

/// Several, as one table; `values[i]` are those of the options named `varied` that led to `all[i]`. Where one is
/// refused (Largest::refusal), its row has no figures.
[[nodiscard]] Answer answer_of(std::span<const Largest> all, const std::vector<std::string>& varied,
                               const std::vector<std::vector<std::string>>& values);

}  // namespace memcalc
