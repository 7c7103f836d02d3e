// TimeOptions: what is known of the data, of the host and of the whole training; nothing of it changes a byte on the
// card.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "memcalc/base/bytes.h"

namespace memcalc {

/// HostSize::source where the user says it.
inline constexpr std::string_view kHostMemoryOption = "--host-memory";

/// Memory of each host, for all of its cards.
struct HostSize {
  Bytes bytes = 0;     // 0: not known
  std::string source;  // kHostMemoryOption, or of which system that is usual
};

struct TimeOptions {
  std::optional<double> tokens;          // of the whole training; --tokens
  std::optional<double> sample_seconds;  // of a loader's worker for a sample; --sample-seconds
  std::optional<double> sample_bytes;    // read from storage for a sample; --sample-bytes
  std::optional<double> storage_rate;    // bytes/s of the storage; --storage-rate
  std::optional<std::string> host;       // file of the host that issues the kernels; --host
  HostSize host_size;                    // of --host-memory, or the usual host of the card
};

}  // namespace memcalc
