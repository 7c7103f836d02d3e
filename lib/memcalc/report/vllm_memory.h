// vLLM beside the model that trains, in the same process and on the same card (TRL's vllm_mode="colocate"): what it
// takes by its own rules, and which gpu_memory_utilization lets both run. From the sources of vLLM 0.31.0
// (v1/worker/utils.py, request_memory; v1/worker/gpu_worker.py, determine_available_memory; utils/mem_utils.py;
// v1/core/kv_cache_utils.py; device_allocator/cumem.py) and of trl 1.16 (generation/vllm_generation.py). No run with
// vLLM was measured. Covered by tests/unit/vllm_test.cc.
// MIRRORS(trl, "generation/vllm_generation.py", "1.16.0")
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/base/bytes.h"

namespace memcalc {

/// A share of the card's memory that can be asked for, in steps of 0.01; `least` > `most`: there is none.
struct UtilizationRange {
  double least = 0;          // vLLM starts: the cache holds one sequence of its largest length
  double least_for_all = 0;  // and all completions of a step at once
  double most = 0;           // free when vLLM starts, and both fit while it generates and while the model trains
};

/// All of one card.
struct VllmMemory {
  Bytes requested = 0;            // utilization * memory, rounded up: weights, activations, graphs and cache together
  Bytes weights = 0;              // its own copy of the model
  Bytes activations = 0;          // of a forward pass over 4096 tokens, estimated
  std::int64_t cache_layers = 0;  // layers that keep keys and values
  Bytes cache_per_token = 0;      // over all layers
  Bytes cache = 0;                // what is left of `requested`, in whole blocks of 16 tokens; CUDA graphs lessen it
  std::int64_t cached_tokens = 0;
  std::int64_t max_length = 0;       // tokens of the longest sequence that it must be able to hold
  Bytes cache_of_longest = 0;        // what that one takes: without so much vLLM does not start
  std::int64_t sequences = 0;        // completions of a step, with their prompts
  Bytes cache_of_all = 0;            // what they take at once; with less some wait for others
  Bytes taken_before = 0;            // of the card by the trainer when vLLM starts, at least
  Bytes while_generating = 0;        // of the card: the trainer's and vLLM's
  Bytes while_training = 0;          // likewise, at the trainer's peak
  Bytes beside_trainer = 0;          // the larger of the two, less what the trainer alone needs
  bool starts = true;                // neither of vLLM's two checks fails
  UtilizationRange utilization{};    // of which --vllm-utilization is one
  std::vector<std::string> notes{};  // what does not go, and what would: for people
};

}  // namespace memcalc
