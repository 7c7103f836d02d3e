// What transformers' attention layers share: the attention interface, the KV cache of a plain loop, rotary positions,
// and the masks of masking_utils.py.
// MIRRORS(transformers, "masking_utils.py", "5.17.0")
#pragma once

#include <utility>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/symbolic/ops/attention.h"

namespace memcalc {

struct AttentionOptions {
  Attention implementation = Attention::kSdpa;
  double dropout = 0;
  bool causal = false;
  // Eager attention only:
  bool softmax_in_float32 = false;      // LLaMA
  bool weights_in_value_dtype = false;  // GPT-2: cast back after the softmax
  bool softcap = false;                 // Gemma 2
};

/// What an attention layer returns; a Python `_` keeps the weights until the layer around it returns.
struct AttentionResult {
  Tensor output;   // [B, S, Hq, D], or projected back to [B, S, h]
  Tensor weights;  // eager attention only
};

/// ALL_ATTENTION_FUNCTIONS[implementation]: query [B, Hq, S, D], key and value [B, Hkv, Skv, D]. `position_bias`
/// [1, Hq, S, Skv] is added to the scores where it is defined (T5).
[[nodiscard]] AttentionResult attention_interface(const Tensor& query, const Tensor& key, const Tensor& value,
                                                  const Tensor& mask, const AttentionOptions& options,
                                                  const Tensor& position_bias = {});

/// repeat_kv: [B, Hkv, S, D] -> [B, times * Hkv, S, D] by copying.
[[nodiscard]] Tensor repeat_kv(const Tensor& x, std::int64_t times);

/// The first half of every …RotaryEmbedding.forward: freqs [1 or B, S, D/2], float32, and the positions as floats,
/// which live as long. They die in this order.
struct RotaryAngles {
  Tensor positions, freqs;

  RotaryAngles(const Tensor& inverse_frequencies, const Tensor& position_ids);
};
/// cos and sin of LlamaRotaryEmbedding.forward, [1 or B, S, D] in `dtype`, else in that of `x`.
[[nodiscard]] std::pair<Tensor, Tensor> rotary_embedding(const Tensor& x, const Tensor& inverse_frequencies,
                                                         const Tensor& position_ids,
                                                         std::optional<DType> dtype = std::nullopt);
/// apply_rotary_pos_emb on both.
void apply_rotary(Tensor& query, Tensor& key, const Tensor& cos, const Tensor& sin);
/// (-x2, x1) of the halves of each head.
[[nodiscard]] Tensor rotate_half(const Tensor& x);
/// (x * cos) + (rotate_half(x) * sin)
[[nodiscard]] Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin);

/// liger_kernel transformers/model/loss_utils.py, LigerForCausalLMLoss.
[[nodiscard]] Tensor liger_causal_lm_loss(const Tensor& hidden_states, const Tensor& lm_head, const Tensor& labels,
                                          const Tensor& number_of_items);

/// torch.arange(sequence) + past: [1, S] int64.
[[nodiscard]] Tensor make_position_ids(Tape& tape, std::int64_t sequence);
/// The batch's own, or those.
[[nodiscard]] Tensor position_ids_of(const Batch& batch, const Tensor& inputs_embeds);

/// What a mask must know of a KV cache.
struct PastTokens {
  bool cached = false;    // one is passed, so nobody looks for packed sequences
  std::int64_t seen = 0;  // tokens of earlier forward passes

  PastTokens(bool cached) : cached(cached) {}  // NOLINT(google-explicit-constructor): nothing was seen yet
  PastTokens(const KeyValueCache* cache)       // NOLINT(google-explicit-constructor)
      : cached(cache != nullptr), seen(cache != nullptr ? cache->seen_tokens() : 0) {}
};

/// create_causal_mask, with a window create_sliding_window_causal_mask: undefined where SDPA can be told is_causal.
[[nodiscard]] Tensor create_causal_mask(const RunSpec& run, const Tensor& inputs_embeds, const Batch& batch,
                                        const PastTokens& past,
                                        std::optional<std::int64_t> sliding_window = std::nullopt);
/// Of encoders before transformers 5.0: where no mask was passed they made one of ones, which lives as long as their
/// forward pass. Else the batch's own. The batch that comes back is to be cleared at its end.
[[nodiscard]] Batch with_mask_of_ones(const Batch& batch, DType dtype = DType::kFloat32);

/// PreTrainedModel.warn_if_padding_and_no_attention_mask: `pad_token_id in input_ids[:, [-1, 0]]`.
void warn_if_padding(const Tensor& input_ids);

/// _create_4d_causal_attention_mask of transformers 4.57.6, and what padding adds to it: numbers.
[[nodiscard]] Tensor create_4d_causal_mask(const Tensor& inputs_embeds, const Batch& batch);

/// create_bidirectional_mask: undefined without padding. `encoder_hidden_states`: of a decoder, what `inputs_embeds`
/// attends to; the batch's mask is as long as they are. With a window create_bidirectional_sliding_window_mask, whose
/// window is the distance to each side: undefined, too, where no sequence is as long.
[[nodiscard]] Tensor create_bidirectional_mask(const RunSpec& run, const Tensor& inputs_embeds, const Batch& batch,
                                               const Tensor& encoder_hidden_states = {},
                                               std::optional<std::int64_t> sliding_window = std::nullopt);

/// ForCausalLMLoss: float32 logits against labels shifted by one; summed and divided by `number_of_items` where that
/// is defined, else the mean.
[[nodiscard]] Tensor causal_lm_loss(const Tensor& logits, const Tensor& labels, const Tensor& number_of_items);

/// The loss of a loop that gets labels which are shifted already (torchtitan's cross_entropy_loss): float32 logits.
[[nodiscard]] Tensor shifted_causal_lm_loss(const Tensor& logits, const Tensor& labels);

}  // namespace memcalc
