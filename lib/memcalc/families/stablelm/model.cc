// StableLM: transformers models/stablelm/modeling_stablelm.py.
// MIRRORS(transformers, "models/stablelm/modeling_stablelm.py", "5.17.0")
#include "memcalc/families/stablelm/spec.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct StableLmAttention : HeadProjections {
  std::int64_t rotary_ndims;

  StableLmAttention(ModuleBuilder& b, const StableLmSpec& spec, const RunSpec& run, bool sliding)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.use_qkv_bias,
                        /*output_bias=*/false),
        rotary_ndims(spec.rotary_dim) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = q_proj(hidden_states);
    Tensor key_states = k_proj(hidden_states);
    Tensor value_states = v_proj(hidden_states);
    for (Tensor* states : {&query_states, &key_states, &value_states}) {
      *states = transpose(view(*states, {hidden_states.size(0), hidden_states.size(1), -1, head_dim}), 1, 2);
    }
    const std::int64_t rest = head_dim - rotary_ndims;
    Tensor query_rot = slice(query_states, -1, 0, rotary_ndims);
    Tensor query_pass = slice(query_states, -1, rotary_ndims, rest);
    Tensor key_rot = slice(key_states, -1, 0, rotary_ndims);
    Tensor key_pass = slice(key_states, -1, rotary_ndims, rest);
    apply_rotary(query_rot, key_rot, positions.cos, positions.sin);
    query_states = cat(query_rot, query_pass, -1);
    key_states = cat(key_rot, key_pass, -1);
    AttentionResult result = attend(hidden_states, query_states, key_states, value_states, mask, cache);
    drop(query_rot, query_pass, key_rot, key_pass);
    return result;
  }
};

struct StableLmLayer {
  StableLmAttention self_attn;
  GatedMlp mlp;
  LayerNorm input_layernorm, post_attention_layernorm;
  double hidden_dropout;
  bool use_parallel_residual;

  StableLmLayer(ModuleBuilder& b, const StableLmSpec& spec, const RunSpec& run, bool sliding)
      : self_attn(b.scope("self_attn", [&] { return StableLmAttention(b, spec, run, sliding); })),
        mlp(b.scope("mlp", [&] { return GatedMlp(b, spec); })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        hidden_dropout(dropout_probability(run, spec.hidden_dropout)),
        use_parallel_residual(spec.use_parallel_residual) {
    if (!use_parallel_residual) {
      post_attention_layernorm = LayerNorm(b, "post_attention_layernorm", spec.hidden_size);
    }
  }

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    Tensor hidden_states, residual = input, mlp_output;
    AttentionResult attention;
    const Locals locals(hidden_states, residual, attention.output, attention.weights, mlp_output);
    hidden_states = input_layernorm(input);
    attention = self_attn.forward(hidden_states, positions, mask, cache);
    if (use_parallel_residual) {
      mlp_output = mlp.forward(hidden_states);
      mlp_output = dropout(mlp_output, hidden_dropout);
      return residual + attention.output + mlp_output;
    }
    residual = residual + attention.output;
    mlp_output = mlp.forward(post_attention_layernorm(residual));
    mlp_output = dropout(mlp_output, hidden_dropout);
    return residual + mlp_output;
  }
};

}  // namespace

std::unique_ptr<Model> build_stablelm(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<StableLmSpec>();
  auto plan = decoder_plan<StableLmLayer, LayerNorm>(spec, run);
  plan.rotary_dim = spec.rotary_dim;
  plan.position_ids_first = true;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
