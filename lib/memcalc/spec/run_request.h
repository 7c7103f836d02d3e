// RunRequest: all that a person asks of an estimate, on any face: the model and its sizes, the run, the card, the data.
// A row of the table in run_fields.cc sets each of its members.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/spec/architecture_changes.h"
#include "memcalc/spec/run_options.h"

namespace memcalc {

/// What is known of the data and of the whole training; nothing of it changes a byte on the card.
struct TimeOptions {
  std::optional<double> tokens;          // of the whole training; --tokens
  std::optional<double> sample_seconds;  // of a loader's worker for a sample; --sample-seconds
  std::optional<double> sample_bytes;    // read from storage for a sample; --sample-bytes
  std::optional<double> storage_rate;    // bytes/s of the storage; --storage-rate
};

struct RunRequest {
  std::string model;             // registry name or path; --model
  std::string family;            // a family by itself; --arch
  ArchitectureChanges changes;   // --layers, --hidden, …
  RunOptions run;
  std::string gpu;               // registry name or path; empty: the assumed card; --gpu
  TimeOptions time;
  std::vector<std::size_t> given;  // rows of run_fields() that were set, in the order of the table
};

}  // namespace memcalc
