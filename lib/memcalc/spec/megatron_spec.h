// What a Megatron-LM run is told beside sizes and parallelism: --megatron, a list of Megatron's own argument names
// (megatron/training/arguments.py), as "attention-backend=unfused,no-gradient-accumulation-fusion".
// Its rows in run_fields_table.cc read them. Covered by tests/unit/run_fields_test.cc.
// MIRRORS(megatron, "training/arguments.py", "0.14.0")
#pragma once

#include <cstdint>
#include <optional>

namespace memcalc {

/// kNative: unfused, in place; kFused: compiled (cross-entropy-loss-fusion); kTe: TransformerEngine's Triton kernel
/// (cross-entropy-fusion-impl=te).
enum class MegatronLoss : std::uint8_t { kNative, kFused, kTe };

/// attention-backend. kFused: cuDNN's by TransformerEngine; kFlash: flash-attn's; kUnfused: scores in full; kLocal:
/// Megatron's own layers without TransformerEngine (transformer-impl=local).
enum class MegatronAttention : std::uint8_t { kFused, kFlash, kUnfused, kLocal };

struct MegatronLayout {
  MegatronLoss loss = MegatronLoss::kNative;
  MegatronAttention attention = MegatronAttention::kFused;
  bool recomputes_blocks = false;      // recompute-method=block: the first layers of each chunk; else uniform: all
  std::int64_t recompute_layers = 0;   // recompute-num-layers: so many of a chunk, or so many at a time; 0: 1 at a time
  bool fuses_weight_gradients = true;  // no-gradient-accumulation-fusion
  bool overlaps_gradient_reduce = false;   // overlap-grad-reduce: buckets, so that more padding
  std::int64_t vocabulary_multiple = 128;  // make-vocab-size-divisible-by
  std::int64_t expert_tensor = 0;          // expert-tensor-parallel-size; 0: as --tp
  std::optional<double> expert_capacity;   // moe-expert-capacity-factor, padded to it; absent: no token is dropped
  double expert_imbalance = 1.0;           // expert-imbalance: tokens on the fullest rank / average
  bool gathers_tokens = false;             // moe-token-dispatcher-type=allgather; else alltoall
  bool groups_experts = true;              // moe-grouped-gemm; else one expert after another
  bool fuses_permutation = true;           // moe-permute-fusion: TransformerEngine's kernels
  bool routes_in_float32 = true;           // moe-router-dtype=fp32; none: in the activations' type
  std::int64_t shared_expert_width = 0;    // moe-shared-expert-intermediate-size; 0: as the model's
  std::int64_t first_stage_layers = 0;     // decoder-first-pipeline-num-layers; 0: as the others
  std::int64_t last_stage_layers = 0;      // decoder-last-pipeline-num-layers
  bool counts_embedding = false;           // account-for-embedding-in-pipeline-split: it takes the place of a layer
  bool counts_loss = false;                // account-for-loss-in-pipeline-split
  std::int64_t micro_batch_group = 0;      // microbatch-group-size-per-virtual-pipeline-stage; 0: --pp
  bool defers_head_gradient = false;       // defer-embedding-wgrad-compute
  std::int64_t deferral_limit = 0;         // wgrad-deferral-limit: micro-batches that are put off; 0: all
  bool engine_1_2 = false;                 // transformer-engine=1.2, of NGC PyTorch 24.01; else 2.11
  bool deterministic = false;              // deterministic-mode: matters to which attention 1.2 has
  bool fuses_softmax = true;               // no-masked-softmax-fusion, of Megatron's own attention
  bool softmax_in_float32 = false;         // attention-softmax-in-fp32, where the softmax is not fused
  bool scales_by_layer = false;            // apply-query-key-layer-scaling: of the scores, memory is the same
  bool fuses_rope = true;                  // no-rope-fusion
  double rotary_percent = 1.0;             // rotary-percent: of a head's width
  bool squared_relu = false;               // squared-relu
  std::int64_t max_positions = 0;          // max-position-embeddings; 0: as the model's, else as --seq
  // Of the model, where it is not what the family says.
  std::optional<bool> bias_linear;          // disable-bias-linear
  std::optional<bool> swiglu;               // swiglu
  std::optional<bool> rms_norm;             // normalization
  std::optional<bool> rotary;               // position-embedding-type
  std::optional<bool> shares_embeddings;    // untie-embeddings-and-output-weights
  std::optional<double> hidden_dropout;     // hidden-dropout
  std::optional<double> attention_dropout;  // attention-dropout
};

}  // namespace memcalc
