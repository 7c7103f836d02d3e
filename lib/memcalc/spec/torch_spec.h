// What only torch's own parallel modules have: DDP, FSDP, DTensor. The option names of the command line are in
// comments.
#pragma once

#include <cstdint>
#include <optional>

#include "memcalc/base/dtype.h"

namespace memcalc {

/// Several GPUs in a mesh of torch's, accelerate's among them.
struct TorchMesh {
  bool loss_parallel = false;  // logits stay split by vocabulary; --loss-parallel
  // FSDP
  bool prefetches_backward = false;        // FSDP1 in the Trainer, backward_prefetch; --fsdp-backward-prefetch
  std::int64_t hsdp_shard = 0;             // ranks that share one copy; 0: all; --hsdp-shard
  std::optional<DType> fsdp_param_dtype;   // MixedPrecisionPolicy; --fsdp-param-dtype
  std::optional<DType> fsdp_reduce_dtype;  // --fsdp-reduce-dtype
  bool reshard_after_forward = true;       // --no-reshard-after-forward
  bool keep_last_layer = false;            // but not of the last layer, as torchtitan; --keep-last-layer
  // DDP
  bool ddp_bucket_view = false;   // gradient_as_bucket_view; --ddp-bucket-view
  bool ddp_static_graph = false;  // --ddp-static-graph
};

}  // namespace memcalc
