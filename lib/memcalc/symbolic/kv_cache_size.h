// How large a KV cache became: what a report says of inference.
#pragma once

#include <cstdint>

#include "memcalc/base/bytes.h"

namespace memcalc {

struct KeyValueCacheSize {
  std::int64_t sequences = 0;  // rows: batch * beams
  std::int64_t tokens = 0;     // of each, prompt and new ones
  std::int64_t layers = 0;     // that keep keys and values
  std::int64_t windowed = 0;   // of them, that keep no more than a window's
  Bytes bytes = 0;             // of all rows and layers, as their elements count
  Bytes bytes_per_token = 0;   // of one row and token, over the layers
  Bytes encoder_bytes = 0;     // cross attention: keys and values of the encoder's tokens, in addition
};

}  // namespace memcalc
