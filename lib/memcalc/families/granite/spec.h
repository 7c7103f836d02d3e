// Granite: transformers models/granite.
#pragma once

#include "memcalc/families/llama/spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// IBM's Granite 3 and 4 without experts (models/granite): LLaMA with numbers that multiply its embeddings and halves
/// and divide its logits.
struct GraniteSpec : LlamaSpec {};

BuildFamily build_granite;

namespace family {
extern const Family kGranite;
}  // namespace family

}  // namespace memcalc
