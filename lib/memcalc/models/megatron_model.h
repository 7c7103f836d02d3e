// What Megatron's loop runs: one model chunk of one rank, of GPT, BERT or T5. A model is a class in a source of its own
// (megatron_NAME.cc) and a function that a family's to_megatron puts into its MegatronConfig.
#pragma once

#include "memcalc/models/megatron_config.h"
#include "memcalc/symbolic/ops/megatron_memory.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// What get_batch() hands a chunk: what it does not use stays undefined.
struct MegatronBatch {
  Tensor tokens, position_ids;  // [b, s] int64
  Tensor labels, loss_mask;     // [b, s] int64, float32
  Tensor attention_mask;        // GPT: [b, 1, s, s] bool, for a softmax that does not make its own
  Tensor token_types;           // BERT: [b, s] int64
  Tensor sentence_order;        // BERT: [b] int64
  Tensor padding;               // BERT, T5's encoder: [b, s] int64, 1 where a token is
  Tensor decoder_tokens;        // T5: [b, target] int64, as its labels
  Tensor decoder_padding;       // T5: [b, target]
};

class MegatronModel {
 public:
  /// `config` and `memory` must outlive the model.
  MegatronModel(const MegatronConfig& config, MegatronMemory& memory, const MegatronChunk& chunk)
      : config_(config), memory_(memory), chunk_(chunk) {}
  MegatronModel(const MegatronModel&) = delete;
  MegatronModel& operator=(const MegatronModel&) = delete;
  virtual ~MegatronModel() = default;

  /// get_batch() of its pretrain_NAME.py.
  [[nodiscard]] virtual MegatronBatch make_batch() const = 0;
  /// Hidden states [s, b, h] for the next chunk, or the scalar loss. `input`: from the chunk before; undefined where
  /// this one embeds.
  [[nodiscard]] virtual Tensor forward(const MegatronBatch& batch, const Tensor& input) = 0;

  [[nodiscard]] const MegatronChunk& chunk() const { return chunk_; }

 protected:
  /// A tensor of the batch.
  [[nodiscard]] Tensor given(const Shape& shape, DType dtype) const;

  const MegatronConfig& config_;
  MegatronMemory& memory_;
  MegatronChunk chunk_;
};

}  // namespace memcalc
