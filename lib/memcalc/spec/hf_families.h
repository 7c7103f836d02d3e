// Internal to spec/hf_*.cc: the readers of config.json by family, outside of hf_config.cc.
#pragma once

#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/model_spec.h"

namespace memcalc::hf {

[[nodiscard]] Architecture bart(HfReader& config);
[[nodiscard]] Architecture clip(HfReader& config);
[[nodiscard]] Architecture distilbert(HfReader& config);
[[nodiscard]] Architecture t5(HfReader& config);
[[nodiscard]] Architecture mt5(HfReader& config);
[[nodiscard]] Architecture whisper(HfReader& config);

}  // namespace memcalc::hf
