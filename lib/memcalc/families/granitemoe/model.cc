// Granite's mixtures of experts: transformers models/granitemoe/modeling_granitemoe.py.
// MIRRORS(transformers, "models/granitemoe/modeling_granitemoe.py", "5.17.0")
#include <utility>

#include "memcalc/families/granitemoe/spec.h"
#include "memcalc/families/granitemoehybrid/mixture.h"
#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

namespace {

/// GraniteMoeModel multiplies what it looked up by embedding_multiplier behind its mask.
struct LateMultipliedEmbedding : Embedding {
  using Embedding::Embedding;
  [[nodiscard]] static bool is_scaled_late() { return true; }
};

struct GraniteMoeAttention : RotaryAttention {
  GraniteMoeAttention(ModuleBuilder& b, const GraniteMoeSpec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        spec.attention_bias) {}
};

/// GraniteMoeDecoderLayer
struct GraniteMoeLayer {
  GraniteMoeAttention self_attn;
  RmsNorm input_layernorm, post_attention_layernorm;
  GraniteMixture block_sparse_moe;

  GraniteMoeLayer(ModuleBuilder& b, const GraniteMoeSpec& spec, const RunSpec& run, bool sliding)
      : self_attn(b.scope("self_attn", [&] { return GraniteMoeAttention(b, spec, run, sliding); })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size),
        block_sparse_moe(b.scope("block_sparse_moe", [&] { return GraniteMixture(b, spec, spec.experts); })) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    Tensor residual = input;
    Tensor hidden_states = input_layernorm(input);
    AttentionResult attention = self_attn.forward(hidden_states, positions, mask, cache);
    hidden_states = std::move(attention.output);
    hidden_states = residual + multiply_scalar(hidden_states);
    residual = hidden_states;
    hidden_states = post_attention_layernorm(hidden_states);
    hidden_states = block_sparse_moe.forward(hidden_states);
    hidden_states = residual + multiply_scalar(hidden_states);
    drop(residual, attention.weights);
    return hidden_states;
  }
};

}  // namespace

std::unique_ptr<Model> build_granitemoe(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<GraniteMoeSpec>();
  auto plan = decoder_plan<GraniteMoeLayer>(spec, run);
  plan.masks = {};  // no window
  plan.embedding = embedding_of<LateMultipliedEmbedding>(spec);
  plan.logits = LogitsChange::kDivided;
  plan.mask_behind_positions = true;
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
