// Which models have an auxiliary loss of their routers: TRL's trainers add it where a config has output_router_logits.
// Covered by tests/unit/run_options_test.cc.
// MIRRORS(trl, "trainer/sft_trainer.py", "1.16.0")
#pragma once

#include "memcalc/spec/model_spec.h"

namespace memcalc {

/// hasattr(config, "output_router_logits"): Mixtral, Qwen3-MoE and gpt-oss, not DeepSeek.
[[nodiscard]] bool returns_router_logits(const ModelSpec& model);

}  // namespace memcalc
