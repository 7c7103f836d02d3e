// megatron/core/models/bert/{bert_model,bert_lm_head,pooler}.py, pretrain_bert.py (core_r0.14.0).
// Covered by tests/unit/megatron_test.cc; rows of others: scripts/megatron_tables.
// MIRRORS(megatron, "core/models/bert/bert_lm_head.py", "0.14.0")
// MIRRORS(megatron, "core/models/bert/bert_model.py", "0.14.0")
// MIRRORS(megatron, "core/models/bert/pooler.py", "0.14.0")
#include <optional>
#include <utility>

#include "memcalc/models/megatron_gpt.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/tensor_parallel.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kGatherSequence{"c10d::_allgather_base_"};
constexpr std::int64_t kSentenceOrders = 2;  // of the binary head

class MegatronBert : public MegatronModel {
 public:
  MegatronBert(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory, const MegatronChunk& chunk)
      : MegatronModel(config, memory, chunk) {
    const std::int64_t hidden = config.hidden_size;
    if (chunk.embeds) embedding_.emplace(b, config, memory);
    encoder_.emplace(b, "encoder", config, memory, chunk.first_layer, chunk.layers, chunk.predicts);
    if (!chunk.predicts) return;
    lm_head_layer_norm_ = b.scope("lm_head", [&] {
      lm_head_dense_ = unsplit(b, "dense", hidden);
      return MegatronNorm(b, "layer_norm", memory, hidden, false);
    });
    head_.emplace(b, config, memory, !(config.shares_embeddings && chunk.embeds), config.head_bias);
    binary_head_ = unsplit(b, "binary_head", kSentenceOrders);
    pooler_dense_ = b.scope("pooler", [&] { return unsplit(b, "dense", hidden); });
  }

  /// Every stage reads whole batches (get_batch, broadcast_data).
  [[nodiscard]] MegatronBatch make_batch() const override {
    const Shape tokens{config_.micro_batch_size, config_.sequence_length};
    MegatronBatch batch;
    batch.tokens = given(tokens, DType::kInt64);
    batch.token_types = given(tokens, DType::kInt64);
    batch.sentence_order = given({config_.micro_batch_size}, DType::kInt64);
    batch.loss_mask = given(tokens, DType::kFloat32);
    batch.labels = given(tokens, DType::kInt64);
    batch.padding = given(tokens, DType::kInt64);
    return batch;
  }

  [[nodiscard]] Tensor forward(const MegatronBatch& batch, const Tensor& input) override {
    MegatronLayerInputs inputs;
    if (config_.options.attention == MegatronAttention::kLocal || config_.options.engine_1_2) {
      inputs.self.mask = pairs_mask(batch.padding);
    } else {
      inputs.self.query_padding = inputs.self.key_padding = row_mask(batch.padding);
    }
    Tensor hidden_states = chunk_.embeds ? (*embedding_)(batch.tokens) : input;
    encoder_->run_layers(hidden_states, inputs);
    if (!chunk_.predicts) return hidden_states;
    hidden_states = encoder_->normalize(hidden_states);
    const Tensor pooled = pool(hidden_states);
    hidden_states = unsplit_linear(memory_, hidden_states, config_.hidden_size);
    hidden_states = lm_head_layer_norm_(gelu(std::move(hidden_states)));
    Tensor loss = head_->summed_loss(batch, std::move(hidden_states));
    Tensor orders = unsplit_linear(memory_, pooled, kSentenceOrders);
    return std::move(loss) + cross_entropy(to_dtype(std::move(orders), DType::kFloat32), batch.sentence_order);
  }

 private:
  struct Unsplit {
    Tensor weight, bias;
  };
  [[nodiscard]] Unsplit unsplit(ModuleBuilder& b, std::string_view name, std::int64_t out) const {
    return b.scope(name, [&] {
      const Tensor weight = b.parameter("weight", {out, config_.hidden_size});
      return Unsplit{weight, b.parameter("bias", {out}, false)};
    });
  }
  // bert_extended_attention_mask: [b, 1, 1, s] for TransformerEngine from 1.10 on, else [b, 1, s, s].
  [[nodiscard]] static Tensor row_mask(const Tensor& mask) {
    return no_grad::less(view(mask, {mask.size(0), 1, 1, mask.size(1)}));
  }
  [[nodiscard]] static Tensor pairs_mask(const Tensor& mask) {
    const std::int64_t batch = mask.size(0), sequence = mask.size(1);
    return no_grad::less(no_grad::multiply(view(mask, {batch, 1, 1, sequence}), view(mask, {batch, 1, sequence, 1})));
  }
  /// Pooler: of the first token, out of all of the sequence.
  [[nodiscard]] Tensor pool(const Tensor& hidden_states) const {
    Tensor all = hidden_states;
    const std::int64_t ranks = memory_.tensor_parallel;
    if (memory_.sequence_parallel && ranks > 1) {
      all = exchange(all, {all.size(0) * ranks, all.size(1), all.size(2)}, kGatherSequence, Collective::kAllGather,
                     ranks);
    }
    return tanh(unsplit_linear(memory_, select(all, 0), config_.hidden_size));
  }

  std::optional<MegatronEmbedding> embedding_;
  std::optional<MegatronBlock> encoder_;
  std::optional<MegatronHead> head_;
  Unsplit lm_head_dense_, binary_head_, pooler_dense_;
  MegatronNorm lm_head_layer_norm_;
};

}  // namespace

std::unique_ptr<MegatronModel> build_megatron_bert(ModuleBuilder& b, const MegatronConfig& config,
                                                   MegatronMemory& memory, const MegatronChunk& chunk) {
  return std::make_unique<MegatronBert>(b, config, memory, chunk);
}

}  // namespace memcalc
