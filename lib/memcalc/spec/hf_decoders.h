// Internal to spec/hf_*.cc: the readers of decoder families with rotary positions, and of OPT. As those in
// hf_config.cc, one function a family.
#pragma once

#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/model_spec.h"

namespace memcalc::hf {

[[nodiscard]] Architecture gemma(HfReader& config);
[[nodiscard]] Architecture gemma2(HfReader& config);
[[nodiscard]] Architecture gemma3_text(HfReader& config);
[[nodiscard]] Architecture gpt_neox(HfReader& config);
[[nodiscard]] Architecture llama(HfReader& config);
[[nodiscard]] Architecture mistral(HfReader& config);
[[nodiscard]] Architecture olmo2(HfReader& config);
[[nodiscard]] Architecture opt(HfReader& config);
[[nodiscard]] Architecture phi(HfReader& config);
[[nodiscard]] Architecture phi3(HfReader& config);
[[nodiscard]] Architecture qwen2(HfReader& config);
[[nodiscard]] Architecture qwen3(HfReader& config);

}  // namespace memcalc::hf
