// What vLLM takes of the card that it shares with the model that trains (report/vllm_memory.h). Covered by
// tests/unit/vllm_test.cc.
// MIRRORS(vllm, "device_allocator/cumem.py", "0.31.0")
// MIRRORS(vllm, "v1/core/kv_cache_utils.py", "0.31.0")
// MIRRORS(vllm, "v1/worker/gpu_worker.py", "0.31.0")
#pragma once

#include <string>

#include "memcalc/alloc/replay.h"
#include "memcalc/report/vllm_memory.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/train/step.h"

namespace memcalc {

/// What the trainer's process takes of the card.
struct TrainerOnCard {
  Bytes at_peak = 0;  // reserved, context, kernels
  const ReplayResult& memory;
};

/// Pre: run.shares_card_with_vllm(). Throws Error(kUnsupported) for a model whose KV cache in vLLM is not known.
[[nodiscard]] VllmMemory vllm_on_card(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device,
                                      const SymbolicRun& symbolic, const TrainerOnCard& trainer);

/// A share as it is typed: "0.3".
[[nodiscard]] std::string format_share(double share);

}  // namespace memcalc
