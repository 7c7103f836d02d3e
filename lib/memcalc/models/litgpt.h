// LitGPT's GPT, for the architectures that a lit_config.json can be read to (spec/lit_config.h).
#pragma once

#include <memory>

#include "memcalc/models/model.h"

namespace memcalc {

/// Throws Error(kUnsupported) for an architecture that is neither LLaMA nor GPT-NeoX nor Phi.
[[nodiscard]] std::unique_ptr<Model> build_litgpt(const ModelSpec& spec, const RunSpec& run, ModuleBuilder& builder);

}  // namespace memcalc
