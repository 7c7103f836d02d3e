// The text model of Llama 3.2 Vision: transformers models/mllama/modeling_mllama.py, MllamaForCausalLM.
// MIRRORS(transformers, "models/mllama/modeling_mllama.py", "5.17.0")
#include <optional>

#include "memcalc/families/mllama/spec.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// MllamaTextCrossAttention, whose forward needs an image.
struct MllamaCrossAttention : HeadProjections {
  RmsNorm q_norm, k_norm;

  MllamaCrossAttention(ModuleBuilder& b, const MllamaTextSpec& spec, const RunSpec& run)
      : HeadProjections(b, spec, causal_attention(run, 0), /*sliding=*/false, /*qkv_bias=*/false,
                        /*output_bias=*/false),
        q_norm(b, "q_norm", spec.head_dim),
        k_norm(b, "k_norm", spec.head_dim) {}
};

/// MllamaTextSelfAttention: LLaMA's, which projects all three before it takes any apart.
struct MllamaSelfAttention : HeadProjections {
  MllamaSelfAttention(ModuleBuilder& b, const MllamaTextSpec& spec, const RunSpec& run, bool sliding)
      : HeadProjections(b, spec, causal_attention(run, 0), sliding, /*qkv_bias=*/false, /*output_bias=*/false) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = q_proj(hidden_states);
    Tensor key_states = k_proj(hidden_states);
    Tensor value_states = v_proj(hidden_states);
    const Shape by_head{hidden_states.size(0), hidden_states.size(1), -1, head_dim};
    for (Tensor* states : {&query_states, &key_states, &value_states}) {
      *states = transpose(view(*states, by_head), 1, 2);
    }
    rotate_heads(query_states, key_states, positions);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

using MllamaSelfAttentionLayer = PreNormLayer<MllamaTextSpec, MllamaSelfAttention, RmsNorm>;

/// MllamaCrossAttentionDecoderLayer: its parameters alone.
struct MllamaCrossAttentionLayer {
  MllamaCrossAttention cross_attn;
  RmsNorm input_layernorm;
  Tensor cross_attn_attn_gate;
  GatedMlp mlp;
  RmsNorm post_attention_layernorm;
  Tensor cross_attn_mlp_gate;

  MllamaCrossAttentionLayer(ModuleBuilder& b, const MllamaTextSpec& spec, const RunSpec& run)
      : cross_attn(b.scope("cross_attn", [&] { return MllamaCrossAttention(b, spec, run); })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        cross_attn_attn_gate(gate(b, "cross_attn_attn_gate")),
        mlp(b.scope("mlp", [&] { return GatedMlp(b, spec); })),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size),
        cross_attn_mlp_gate(gate(b, "cross_attn_mlp_gate")) {}

 private:
  /// A parameter of the layer itself, which stands before those of its modules.
  [[nodiscard]] static Tensor gate(ModuleBuilder& b, std::string_view name) {
    return b.parameter_before(name, {1}, "cross_attn.q_proj.weight");
  }
};

struct MllamaLayer {
  std::optional<MllamaSelfAttentionLayer> of_text;
  std::optional<MllamaCrossAttentionLayer> of_images;

  MllamaLayer(ModuleBuilder& b, const MllamaTextSpec& spec, const RunSpec& run, bool sliding, LayerIndex index) {
    if (spec.looks_at_images[static_cast<std::size_t>(index.value)]) {
      of_images.emplace(b, spec, run);
    } else {
      of_text.emplace(b, spec, run, sliding);
    }
  }

  [[nodiscard]] bool is_left_out() const { return of_images.has_value(); }
  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    return of_text->forward(input, positions, mask, cache);
  }
};

}  // namespace

std::unique_ptr<Model> build_mllama_text(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<MllamaTextSpec>();
  auto plan = decoder_plan<MllamaLayer>(spec, run);
  // embed_tokens has 8 rows more than the head, for the image and its kin.
  constexpr std::int64_t kMoreTokens = 8;
  plan.embedding = [rows = spec.vocab_size + kMoreTokens, width = spec.hidden_size](ModuleBuilder& b) {
    const Embedding embedding(b, "embed_tokens", rows, width);
    return WordEmbedding{embedding.weight, embedding};
  };
  plan.position_ids_first = true;
  plan.logits = LogitsChange::kFloat32;
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
