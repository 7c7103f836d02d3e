// Kimi-Linear: transformers models/kimi_linear/modeling_kimi_linear.py.
// MIRRORS(transformers, "models/kimi_linear/modeling_kimi_linear.py", "5.17.0")
#include <tuple>
#include <utility>
#include <variant>

#include "memcalc/families/deepseek/latent.h"
#include "memcalc/families/kimi_linear/delta_attention.h"
#include "memcalc/families/kimi_linear/spec.h"
#include "memcalc/models/hybrid_layer.h"
#include "memcalc/symbolic/ops/integer.h"

namespace memcalc {

namespace {

/// KimiLinearAttention: latent attention without positions.
struct KimiLatentAttention : LatentAttention {
  KimiLatentAttention(ModuleBuilder& b, const KimiLinearSpec& spec, const RunSpec& run)
      : LatentAttention(b, spec, run, nullptr) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const Tensor& mask, KeyValueCache* cache) const {
    const std::int64_t batch_size = hidden_states.size(0), seq_length = hidden_states.size(1);
    Tensor q_states, query_states, compressed_kv, kv_nope, k_rot, key_states, value_states;
    const Locals locals(q_states, query_states, compressed_kv, kv_nope, k_rot, key_states, value_states);
    q_states = queries(hidden_states);
    query_states = transpose(view(q_states, {batch_size, seq_length, num_heads, -1}), 1, 2);
    compressed_kv = kv_a_proj_with_mqa(hidden_states);
    std::tie(kv_nope, k_rot) = split_last(compressed_kv, dims.kv_lora_rank);
    kv_nope = kv_a_layernorm(kv_nope);
    kv_nope = view(kv_nope, {batch_size, 1, seq_length, dims.kv_lora_rank});
    k_rot = view(k_rot, {batch_size, 1, seq_length, dims.qk_rope_head_dim});
    if (cache != nullptr) cache->update(kv_nope, k_rot);
    std::tie(key_states, value_states) = expand_kv(kv_nope, k_rot);
    AttentionResult result = attention_interface(query_states, key_states, value_states, mask, options);
    result.output = flatten_heads(result.output, hidden_states);
    result.output = o_proj(result.output);
    return result;
  }
};

using KimiMoe = MixtureWithShared<KimiLinearSpec, GroupedSigmoidRouter>;
using KimiMixer = std::variant<KimiDeltaAttention, KimiLatentAttention>;
using KimiMlp = DenseOrMixture<KimiMoe>;

/// KimiLinearDecoderLayer
struct KimiLinearLayer {
  KimiMixer self_attn;
  KimiMlp mlp;
  RmsNorm input_layernorm, post_attention_layernorm;

  KimiLinearLayer(ModuleBuilder& b, const KimiLinearSpec& spec, const RunSpec& run, bool /*sliding*/, LayerIndex index)
      : self_attn(b.scope("self_attn",
                          [&] {
                            return spec.linear_layers[static_cast<std::size_t>(index.value)]
                                       ? KimiMixer{KimiDeltaAttention(b, spec)}
                                       : KimiMixer{KimiLatentAttention(b, spec, run)};
                          })),
        mlp(b.scope("mlp",
                    [&] {
                      return spec.dense_layers[static_cast<std::size_t>(index.value)]
                                 ? KimiMlp{GatedMlp(b, spec, false)}
                                 : KimiMlp{KimiMoe(b, spec, false)};
                    })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& /*positions*/, const Tensor& mask,
                               KeyValueCache* cache) const {
    const auto mix = [&](const Tensor& x) -> AttentionResult {
      if (const auto* delta = std::get_if<KimiDeltaAttention>(&self_attn)) return {delta->forward(x, mask, cache), {}};
      return std::get<KimiLatentAttention>(self_attn).forward(x, mask, cache);
    };
    return forward_of_hybrid(input, input_layernorm, mix, post_attention_layernorm, mlp);
  }
};

/// KimiLinearPreTrainedModel._init_weights of a KimiLinearForgetGate: what it computes A_log and dt_bias from.
void initialize_forget_gate(ModuleBuilder& b, const KimiLinearSpec& spec) {
  no_grad::zeros(b.tape, {spec.linear_num_heads}, b.dtype).reset();  // the logarithm of a uniform A_log
  Tensor exponential = no_grad::zeros(b.tape, {checked_multiply(spec.linear_num_heads, spec.linear_head_dim)}, b.dtype);
  Tensor dt = no_grad::clamp(std::move(exponential));
  Tensor sum = no_grad::add(dt, no_grad::logarithm(no_grad::negate(no_grad::exponential(no_grad::negate(dt)))));
  drop(sum, dt);
}

}  // namespace

std::unique_ptr<Model> build_kimi_linear(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<KimiLinearSpec>();
  auto plan = decoder_plan<KimiLinearLayer>(spec, run);
  plan.masks = MaskPlan::hybrid(spec.linear_layers);
  plan.rotary_dim = 0;
  plan.has_classifier = false;
  plan.late_buffers = [&spec](ModuleBuilder& b) {
    for (const bool linear : spec.linear_layers) {
      if (linear) initialize_forget_gate(b, spec);
    }
  };
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
