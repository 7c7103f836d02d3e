// MiniCPM 3: transformers models/minicpm3.
#pragma once

#include "memcalc/families/deepseek/spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// MiniCPM 3 (models/minicpm3): DeepSeek-V2's latent attention with LLaMA's rotation, in dense layers whose halves are
/// scaled.
struct MiniCpm3Spec : DeepseekSpec {};

BuildFamily build_minicpm3;

namespace family {
extern const Family kMiniCpm3;
}  // namespace family

}  // namespace memcalc
