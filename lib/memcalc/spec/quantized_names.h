// Names of checkpoints that say how their weights are stored: "unsloth/Qwen3-8B-bnb-4bit" is Qwen3-8B in NF4.
// Covered by tests/unit/quantized_names_test.cc.
#pragma once

#include <optional>
#include <string_view>

#include "memcalc/spec/fine_tuning.h"

namespace memcalc {

struct QuantizedName {
  std::string_view base;                     // the name without the format, a part of the name that was asked about
  std::string_view format;                   // "bitsandbytes' NF4 with double quantisation", in a sentence
  std::optional<Quantization> quantization;  // nothing: a format that is not modelled; kNone: bfloat16
  std::string_view beside{};  // what such checkpoints have else and memcalc does not count; empty: nothing
};

/// Nothing where the name ends in no format that is known. `name`: a hub id or its last part, in any case.
[[nodiscard]] std::optional<QuantizedName> quantized_name(std::string_view name);

}  // namespace memcalc
