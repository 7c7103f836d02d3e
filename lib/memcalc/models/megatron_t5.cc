// megatron/core/models/T5/t5_model.py, pretrain_t5.py, core/datasets/t5_dataset.py (core_r0.14.0): one pipeline stage
// with both stacks. Rows of others: scripts/megatron_tables.
// Covered by tests/unit/megatron_test.cc.
// MIRRORS(megatron, "core/datasets/t5_dataset.py", "0.14.0")
// MIRRORS(megatron, "core/models/T5/t5_model.py", "0.14.0")
// MIRRORS(megatron, "core/models/T5/t5_spec.py", "0.14.0")
#include <utility>

#include "memcalc/models/megatron_gpt.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

class MegatronT5 : public MegatronModel {
 public:
  MegatronT5(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory, const MegatronChunk& chunk)
      : MegatronModel(config, memory, chunk),
        embedding_(b, config, memory),
        encoder_(b, "encoder", config, memory, 0, config.num_layers, true),
        decoder_(b, "decoder", config, memory, 0, config.decoder_layers, true, /*cross_attends=*/true),
        head_(b, config, memory, !config.shares_embeddings, config.head_bias) {}

  [[nodiscard]] MegatronBatch make_batch() const override {
    const Shape tokens{config_.micro_batch_size, config_.sequence_length};
    const Shape targets{config_.micro_batch_size, config_.target_length};
    MegatronBatch batch;
    batch.tokens = given(tokens, DType::kInt64);
    batch.decoder_tokens = given(targets, DType::kInt64);
    batch.labels = given(targets, DType::kInt64);
    batch.loss_mask = given(targets, DType::kFloat32);
    batch.padding = given(tokens, DType::kInt64);
    batch.decoder_padding = given(targets, DType::kInt64);
    return batch;
  }

  [[nodiscard]] Tensor forward(const MegatronBatch& batch, const Tensor& /*input*/) override {
    // config_attention_mask: [b, 1, 1, s] for TransformerEngine from 1.10 on; before it and for local layers
    // [b, 1, sq, sk] of each attention, made of the tokens. The decoder's own is causal.
    MegatronLayerInputs encoder, decoder;
    if (config_.options.attention == MegatronAttention::kLocal || config_.options.engine_1_2) {
      encoder.self.mask = pairs_mask(batch.padding, batch.padding);
      decoder.self.mask = pairs_mask(batch.decoder_padding, batch.decoder_padding);
      decoder.cross.mask = pairs_mask(batch.decoder_padding, batch.padding);
    } else {
      encoder.self.query_padding = encoder.self.key_padding = decoder.cross.key_padding = row_mask(batch.padding);
      decoder.cross.query_padding = row_mask(batch.decoder_padding);
    }
    decoder.cross.context = embedding_(batch.tokens);
    encoder_.run_layers(decoder.cross.context, encoder);
    decoder.cross.context = encoder_.normalize(decoder.cross.context);
    Tensor hidden_states = embedding_(batch.decoder_tokens);
    decoder_.run_layers(hidden_states, decoder);
    hidden_states = decoder_.normalize(hidden_states);
    return head_.summed_loss(batch, std::move(hidden_states));
  }

 private:
  [[nodiscard]] static Tensor row_mask(const Tensor& mask) {  // enc_mask < 0.5
    return view(no_grad::less(mask), {mask.size(0), 1, 1, mask.size(1)});
  }
  /// _build_b1ss_attention_mask
  [[nodiscard]] static Tensor pairs_mask(const Tensor& queries, const Tensor& keys) {
    const Tensor rows = no_grad::greater_equal(view(queries, {queries.size(0), 1, queries.size(1), 1}));
    const Tensor columns = no_grad::greater_equal(view(keys, {keys.size(0), 1, 1, keys.size(1)}));
    return no_grad::bitwise_not(no_grad::multiply(rows, columns));
  }

  MegatronEmbedding embedding_;
  MegatronBlock encoder_, decoder_;
  MegatronHead head_;
};

}  // namespace

std::unique_ptr<MegatronModel> build_megatron_t5(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory,
                                                 const MegatronChunk& chunk) {
  return std::make_unique<MegatronT5>(b, config, memory, chunk);
}

}  // namespace memcalc
