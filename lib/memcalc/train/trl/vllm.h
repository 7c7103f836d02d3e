// vLLM in the place of model.generate() in GRPOTrainer and RLOOTrainer (trl 1.16, generation/vllm_generation.py, with
// vLLM 0.31.0): what it makes the trainer ask of its own allocator. What vLLM takes itself is report/vllm_memory.h's.
// Covered by tests/unit/vllm_test.cc.
// MIRRORS(trl, "generation/vllm_generation.py", "1.16.0")
#pragma once

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// VLLMGeneration.sync_weights() and generate(): the weights of the last step go to vLLM, which then generates. The
/// tokens come back in lists on the host.
void generate_by_vllm(Tape& tape, Model& model, const RunSpec& run);

}  // namespace memcalc
