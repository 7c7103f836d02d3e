// Arcee's AFM: transformers models/arcee.
#pragma once

#include "memcalc/families/llama/spec.h"

namespace memcalc {

/// AFM-4.5B (models/arcee): LLaMA whose MLP has no gate.
struct ArceeSpec : LlamaSpec {};

BuildFamily build_arcee;

namespace family {
extern const Family kArcee;
}  // namespace family

}  // namespace memcalc
