// DeviceSpec: one accelerator as plain values, read from specs/gpus/*.json and specs/measured.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/base/bytes.h"

namespace memcalc {

struct DeviceRates;       // spec/device_rates.h
struct PredictionErrors;  // spec/prediction_errors.h

/// Where the driver puts a new segment (facts: docs/allocator.md, "where cudaMalloc places a segment"). Offsets are
/// relative to the upper end of the first chunk.
struct SegmentPlacement {
  struct Span {
    Bytes offset = 0;
    Bytes size = 0;
  };
  Bytes chunk_granularity = 32 * kMiB;
  std::vector<Span> initial_fragments;  // free spans that exist before the first segment
  std::optional<Span> reserved_span;    // taken by the context: chunks jump over it
};

/// What NCCL takes of a card, measured within a host (report/nccl_memory.h).
struct NcclMemory {
  std::string version;                  // "2.28.9"
  Bytes library_bytes = 0;              // with the first communicator: code of its kernels
  Bytes first_kernel_bytes = 0;         // with the first collective of several ranks
  Bytes broadcast_kernel_bytes = 0;     // beyond that with the first broadcast,
  Bytes send_receive_kernel_bytes = 0;  // with the first send or receive (a broadcast's are within them)
  Bytes granularity_bytes = 1;          // of each of its allocations
  std::int64_t channels = 0;            // of collectives
  std::int64_t p2p_channels = 0;        // to each peer, and what a communicator initialises
  std::int64_t channels_alone = 0;      // the same of one rank
};

/// What a process takes beside the allocator's segments (context, kernels, cuBLAS and cuDNN), of a card on which this
/// project has not measured it.
struct AssumedContext {
  Bytes bytes = 0;
  Bytes error = 0;  // it may be as much less or more
  std::string source;
};

/// What a card's best products reach of its datasheet, over what those of the measured card reach of its own: of
/// 16 bits, TF32 and float32. Its rates are shares of the datasheet times these.
struct ProductShares {
  double half = 1, tf32 = 1, float32 = 1;
  bool of_card = false;  // somebody timed this card; else the median of others that are built alike
  // Of a type that the card has no units for and PyTorch computes in float32, over float32's; 0: not known.
  double bf16_over_float32 = 0, fp16_over_float32 = 0;
};

struct DeviceSpec {
  std::string name;                  // "h100-sxm"
  std::string reference;             // what was asked for: a registry's name, a path (--gpu)
  std::string description;           // "NVIDIA H100 80GB HBM3 (SXM5)"
  Bytes memory_bytes = 0;            // what CUDA reports to torch as total
  Bytes margin_bytes = 0;            // of it, to stay free (--margin)
  bool memory_given = false;         // memory_bytes is what was said (--memory), not the specification's
  int compute_capability_major = 0;  // 9 for Hopper; 0 where it is no CUDA device
  int compute_capability_minor = 0;
  std::string gcn_architecture;  // "gfx942": an AMD card under ROCm; empty: none
  int multiprocessors = 0;
  int max_threads_per_multiprocessor = 2048;
  std::optional<Bytes> context_bytes;              // device memory of a process after its first tensor
  std::optional<Bytes> kernel_bytes;               // what loaded kernels and libraries add by the end of training
  std::optional<Bytes> kernel_bytes_with_cudnn;    // the same where cuDNN attention runs: on Hopper any 16-bit SDPA
  std::optional<AssumedContext> assumed_context;   // where context_bytes is absent: of specs/measured/contexts.json
  std::optional<NcclMemory> nccl;                  // what NCCL takes on one host
  bool nccl_assumed = false;                       // it is the measured card's
  std::shared_ptr<const PredictionErrors> errors;  // of memory, by kind of run; null: none is known
  std::string measured_torch;                      // with which context and kernels were measured: "2.11.0"
  std::optional<Bytes> cublas_workspace_bytes;     // as CUBLAS_WORKSPACE_CONFIG sets it; absent: PyTorch's default,
  std::optional<Bytes> cublaslt_workspace_bytes;   // symbolic/cublas_workspaces.h
  std::optional<SegmentPlacement> placement;       // measured; absent: plain descending chunks
  double memory_bandwidth_bytes_per_second = 0;
  double bf16_flops_per_second = 0;  // dense tensor-core rate by the datasheet
  double fp16_flops_per_second = 0;  // the same for fp16; chips before Ampere have only this one
  double tf32_flops_per_second = 0;
  double fp32_flops_per_second = 0;
  double power_watts = 0;                    // TDP, or the limit that was set below it; 0: not known
  bool power_given = false;                  // that limit is what was said (--power-limit), not the specification's
  double link_bytes_per_second = 0;          // to the other cards of the host, one direction: NVLink; 0: by PCIe
  std::int64_t link_cards = 0;               // that NVLink joins, where it is a bridge; 0: all of the host
  double pcie_bytes_per_second = 0;          // one direction
  double usd_per_hour = 0;                   // rent of one card; 0: not known
  std::string price_source;                  // where and when
  ProductShares product_shares;              // spec/published_rates.h
  std::shared_ptr<const DeviceRates> rates;  // of kernels; null: no step time is predicted
  bool validated = false;                    // memory behaviour measured on this card by this project
  std::string source;
  std::string date;
  std::vector<std::string> assumptions;  // what was taken for what nobody said of it

  /// What a run may take of the card: every verdict compares with this.
  [[nodiscard]] Bytes usable_bytes() const { return memory_bytes - margin_bytes; }
};

}  // namespace memcalc
