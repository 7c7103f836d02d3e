// The symbolic run: model construction and three optimizer steps, executed on tensors without data in PyTorch's
// order. Three, because the blocks that the first step leaves behind decide where the second one's go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/host_copies.h"
#include "memcalc/symbolic/kernel_list.h"
#include "memcalc/symbolic/kv_cache_size.h"
#include "memcalc/symbolic/ops/quantized.h"
#include "memcalc/symbolic/tensor.h"
#include "memcalc/symbolic/trace.h"
#include "memcalc/train/data/data_steps.h"

namespace memcalc {

struct ParameterInfo {
  std::string name;  // "bert.encoder.layer.0.attention.self.query.weight"
  std::int64_t elements = 0;
  DType dtype = DType::kFloat32;
  bool trainable = true;
  Shape shape{};
  bool is_embedding = false;  // the weight of an nn.Embedding
  Shape held{};               // what this rank stores of it and of its gradient; on one GPU all
  bool is_updated = true;     // its optimizer states are on this rank
  Quantization packing = Quantization::kNone;
  PackedBytes packed{};     // where it is packed
  bool is_swapped = false;  // it waits on the host (train/swapped_blocks.h)
};

/// What a rank holds between two steps, where the framework lays it out itself: a row of the accounting.
struct HeldRow {
  std::string name;
  Bytes bytes = 0;
  std::string rule;
  bool pinned = false;  // of what is on the host: locked pages
};

struct SymbolicRun {
  Trace trace;
  DataSteps data_steps;  // whose events are those of the trace's steps 0, 1, …: of --lengths; else empty
  KernelList kernels;    // of the last step
  std::optional<KeyValueCacheSize> kv_cache;  // of inference
  std::size_t measured_from = 0;              // event from which peaks count: inference's second call
  BlockId warm_up = kNoBlock;                 // of a second model that is read beside the first (alloc/warm_up.h)
  Bytes managed_bytes = 0;  // in managed memory, which the trace does not contain: paged optimizer states
  std::vector<ParameterInfo> parameters;
  Bytes reference_bytes = 0;             // weights of a model beside the one that trains (--ref-model own)
  HostCopies host_copies;                // of one forward pass
  HostOptimizer host_optimizer;          // where its states live on the host
  std::vector<Bytes> batch_tensors;      // of one micro-batch, as the data loader hands it over
  std::int64_t inactive_parameters = 0;  // of experts that a token does not take
  std::vector<std::string> assumptions;  // what the step decided for itself: attention kernel, labels, …
  std::vector<std::string> not_modelled;
  // Where the parameters above are a part of the model's, in the framework's own buffers (Megatron-core).
  std::vector<HeldRow> held;             // empty: what follows from the parameters
  std::vector<HeldRow> held_on_host;     // of the same, sharded, what is in host memory
  std::int64_t parameters_of_model = 0;  // on all ranks together; 0: those above
  std::int64_t trainable_of_model = 0;   // of these
  std::int64_t rank = 0;                 // of several GPUs that which was looked at
};

/// Throws Error(kUnsupported) for a combination that is not modelled, Error(kUsage) for one that the framework
/// itself would refuse, Error(kOverflow) for sizes beyond 63 bits.
/// `rank`: of several GPUs the one that is looked at.
[[nodiscard]] SymbolicRun run_symbolically(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device,
                                           std::int64_t rank = 0);

/// `parameters` of the above, without a step where a model is ready before its first one: the bare loop on one GPU.
/// Throws as it does, but not for what a step refuses. Covered by tests/unit/fine_tuning_test.cc.
[[nodiscard]] std::vector<ParameterInfo> parameters_of_run(const ModelSpec& model, const RunSpec& run,
                                                           const DeviceSpec& device);

}  // namespace memcalc
