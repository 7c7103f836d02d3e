// LitGPT's lit_config.json, which its scripts write beside a checkpoint: the fields of lit_gpt/config.py (commit
// 0cc02afa, October 2023). Covered by tests/unit/litgpt_test.cc.
// MIRRORS(lit_gpt, "config.py", "0cc02afa")
#pragma once

#include <string>
#include <string_view>

#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_options.h"

namespace memcalc {

/// ModelSpec::model_type of a model that is made of LitGPT's modules (models/litgpt.cc).
inline constexpr std::string_view kLitGptType = "litgpt";

[[nodiscard]] bool is_lit_config(const JsonObject& json);

/// Sizes as the family of transformers has them that is built alike: LLaMA, GPT-NeoX or Phi.
/// Throws Error(kInput) on wrong values, Error(kUnsupported) on a mixture that is none of the three.
[[nodiscard]] ModelSpec model_from_lit_config(const JsonObject& json, std::string name);

/// What finetune/lora.py and Lightning's BitsandbytesPrecision do where the options say nothing: a plain loop, adapters
/// of query and value in the base's type, every linear layer packed and nothing else converted.
[[nodiscard]] RunOptions with_litgpt_defaults(const ModelSpec& model, RunOptions options);

}  // namespace memcalc
