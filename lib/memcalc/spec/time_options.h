// TimeOptions: what is known of the data and of the whole training; nothing of it changes a byte on the card.
#pragma once

#include <optional>
#include <string>

namespace memcalc {

struct TimeOptions {
  std::optional<double> tokens;          // of the whole training; --tokens
  std::optional<double> sample_seconds;  // of a loader's worker for a sample; --sample-seconds
  std::optional<double> sample_bytes;    // read from storage for a sample; --sample-bytes
  std::optional<double> storage_rate;    // bytes/s of the storage; --storage-rate
  std::optional<std::string> host;       // file of the host that issues the kernels; --host
};

}  // namespace memcalc
