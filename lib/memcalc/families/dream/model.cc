// Dream: the hub's own modeling_dream.py (Dream-org/Dream-v0-Base-7B), as dllm's copy of it runs
// (github.com/ZHZisZZ/dllm, dllm/pipelines/dream/models/modeling_dream.py at ca176752).
#include "memcalc/families/dream/spec.h"

#include <optional>

#include "memcalc/models/attention.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/attention.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// DreamSdpaAttention
struct DreamAttention : HeadProjections {
  std::int64_t groups;
  Tensor inv_freq;  // of its own rotary module, which the model's makes idle

  DreamAttention(ModuleBuilder& b, const DreamSpec& spec, const RunSpec& run, bool sliding)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), sliding, /*qkv_bias=*/true,
                        /*output_bias=*/false),
        groups(spec.num_attention_heads / spec.num_key_value_heads),
        inv_freq(b.buffer({head_dim / 2}, DType::kFloat32)) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* /*cache*/) const {
    Tensor query_states = q_proj(hidden_states);
    Tensor key_states = k_proj(hidden_states);
    Tensor value_states = v_proj(hidden_states);
    for (Tensor* states : {&query_states, &key_states, &value_states}) {
      *states = transpose(view(*states, {hidden_states.size(0), hidden_states.size(1), -1, head_dim}), 1, 2);
    }
    rotate_heads(query_states, key_states, positions);
    key_states = repeat_kv(key_states, groups);
    value_states = repeat_kv(value_states, groups);
    if (mask.defined()) {
      for (Tensor* states : {&query_states, &key_states, &value_states}) *states = contiguous(*states);
    }
    return attend(hidden_states, query_states, key_states, value_states, nullptr,
                  [&](const Tensor& query, const Tensor& key, const Tensor& value) {
                    Tensor output = scaled_dot_product_attention(query, key, value, mask, {.dropout = options.dropout});
                    output = contiguous(transpose(output, 1, 2));
                    return AttentionResult{std::move(output), {}};
                  });
  }
};

/// DreamRotaryEmbedding.forward: both are there before the first is scaled.
RotaryPositions dream_positions(const RotaryEmbedding& rotary, const Tensor& x, const Tensor& position_ids,
                                std::optional<DType> /*dtype*/) {
  const NoGrad no_grad(x.tape().modes);
  RotaryAngles angles(rotary.inverse_frequencies, position_ids);
  Tensor emb = cat(angles.freqs, angles.freqs, -1);
  Tensor cos = cosine(emb), sin = sine(emb);
  cos = multiply_scalar(cos);
  sin = multiply_scalar(sin);
  RotaryPositions positions;
  positions.cos = to_dtype(cos, x.dtype());
  positions.sin = to_dtype(sin, x.dtype());
  drop(angles.positions, angles.freqs, emb, cos, sin);
  return positions;
}

}  // namespace

std::unique_ptr<Model> build_dream(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<DreamSpec>();
  auto plan = decoder_plan<PreNormLayer<DreamSpec, DreamAttention, RmsNorm>>(spec, run);
  plan.masks = {.bidirectional = true};
  plan.one_inverse_frequency = true;
  plan.rotate = dream_positions;
  auto model = std::make_unique<RotaryDecoder>(spec, run, builder, plan);
  model->loss_shifts_labels = true;  // loss_function of a class without a loss of its name is ForCausalLMLoss
  return model;
}

}  // namespace memcalc
