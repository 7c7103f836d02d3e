// SmolLM3: transformers models/smollm3.
#pragma once

#include <vector>

#include "memcalc/families/llama/spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// SmolLM3 (models/smollm3): LLaMA with layers that have no positions.
struct SmolLm3Spec : LlamaSpec {
  std::vector<bool> rotates;         // of each layer
  std::vector<bool> sliding_layers;  // empty: none
};

BuildFamily build_smollm3;

namespace family {
extern const Family kSmolLm3;
}  // namespace family

}  // namespace memcalc
