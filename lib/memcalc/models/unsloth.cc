// unsloth 2026.10.9, models/llama.py (LlamaAttention_fast_forward, LlamaModel_fast_forward), models/qwen3.py.
// MIRRORS(unsloth, "models/llama.py", "2026.10.9")
// MIRRORS(unsloth, "models/qwen3.py", "2026.10.9")
#include "memcalc/models/unsloth.h"

#include <algorithm>
#include <utility>

#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/checkpoint.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

UnslothProduct unsloth_product(const Linear& layer) {
  const FineTunedLinear& tuned = *layer.fine_tuned;
  const bool packed = tuned.quantized.kind != Quantization::kNone;
  return {.packed = packed ? &tuned.quantized : nullptr, .lora_a = tuned.lora_a, .lora_b = tuned.lora_b};
}

std::int64_t unsloth_position_rows(std::int64_t max_position_embeddings, std::int64_t sequence) {
  constexpr std::int64_t kRounded = 8192, kFirst = 4 * kRounded;
  const std::int64_t all =
      max_position_embeddings <= kFirst ? max_position_embeddings : round_up(max_position_embeddings, kRounded);
  return std::min(all, std::max(std::min(kFirst, max_position_embeddings), round_up(sequence, kRounded)));
}

AttentionResult HeadProjections::forward_by_unsloth(const Tensor& hidden_states, bool normed) const {
  std::array<Tensor, 3> projected;
  if (q_proj.bias.defined()) {  // original_apply_qkv: peft's own layers
    projected = {q_proj(hidden_states), k_proj(hidden_states), v_proj(hidden_states)};
  } else {
    projected = unsloth_qkv(hidden_states, {unsloth_product(q_proj), unsloth_product(k_proj), unsloth_product(v_proj)});
  }
  const auto by_head = [&](Tensor& x) {
    return view(std::move(x), {hidden_states.size(0), hidden_states.size(1), -1, head_dim});
  };
  Tensor query = by_head(projected[0]), key = by_head(projected[1]);
  Tensor value = transpose(by_head(projected[2]), 1, 2);
  if (normed) unsloth_norm_and_rotate(query, key);
  query = transpose(std::move(query), 1, 2);
  key = transpose(std::move(key), 1, 2);
  if (!normed) unsloth_rotate(query, key);
  Tensor attended = transpose(unsloth_attention(query, key, value), 1, 2);
  AttentionResult result{.output = reshape(attended, {hidden_states.size(0), hidden_states.size(1), -1}),
                         .weights = {}};
  result.output = unsloth_linear(result.output, unsloth_product(o_proj));
  drop(query, key, value, attended);
  return result;
}

Tensor RotaryDecoder::decode_by_unsloth(const Batch& batch) const {
  const Tensor inputs_embeds = embed_tokens_.look_up(batch.input_ids);
  Tape& tape = inputs_embeds.tape();
  unsloth_make_positions(tape, unsloth_position_rows(max_position_embeddings_, inputs_embeds.size(1)), plan_.rotary_dim,
                         inputs_embeds.dtype());
  const bool checkpoints =
      run_.checkpointing() != Checkpointing::kNone && tape.modes.training && tape.modes.grad_enabled;
  const bool by_torch = checkpoints && run_.training().reentrant.has_value();  // use_gradient_checkpointing=True
  Tensor hidden_states = inputs_embeds;
  for (const auto& layer : layers_) {
    const auto run = [&layer = *layer](const KeptTensors& kept) { return layer.forward(kept[0], {}, {}, nullptr); };
    Tensor output = by_torch      ? checkpointed_layer(run_, 0, {hidden_states}, {}, run)
                    : checkpoints ? run_checkpointed_by_unsloth(hidden_states, run)
                                  : run({hidden_states});
    hidden_states = std::move(output);
  }
  return norm_(hidden_states);
}

}  // namespace memcalc
