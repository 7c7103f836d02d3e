// Falcon-H1: transformers models/falcon_h1/modeling_falcon_h1.py.
// MIRRORS(transformers, "models/falcon_h1/modeling_falcon_h1.py", "5.17.0")
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/families/falcon_h1/spec.h"
#include "memcalc/models/mamba2_mixer.h"
#include "memcalc/models/multiplied_embedding.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct FalconH1Attention : HeadProjections {
  FalconH1Attention(ModuleBuilder& b, const FalconH1Spec& spec, const RunSpec& run)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), /*sliding=*/false, spec.attention_bias,
                        spec.attention_bias) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = transpose(heads(q_proj, hidden_states), 1, 2);
    Tensor key_states;
    {
      const Tensor heads_of_keys = transpose(heads(k_proj, hidden_states), 1, 2);
      key_states = multiply_scalar(heads_of_keys);
    }
    Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
    rotate_heads(query_states, key_states, positions);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

struct FalconH1Mlp {
  Linear gate_proj, up_proj, down_proj;
  std::string act_fn;

  FalconH1Mlp(ModuleBuilder& b, const FalconH1Spec& spec)
      : gate_proj(b, "gate_proj", spec.hidden_size, spec.intermediate_size, spec.mlp_bias),
        up_proj(b, "up_proj", spec.hidden_size, spec.intermediate_size, spec.mlp_bias),
        down_proj(b, "down_proj", spec.intermediate_size, spec.hidden_size, spec.mlp_bias),
        act_fn(spec.hidden_act) {}

  [[nodiscard]] Tensor forward(const Tensor& x) const {
    Tensor y;
    {
      const Tensor up = up_proj(x);
      Tensor activated;
      {
        Tensor gate = gate_proj(x);
        Tensor scaled = multiply_scalar(gate);
        gate.reset();
        activated = activation_function(act_fn, scaled);
      }
      y = up * activated;
    }
    {
      Tensor down = down_proj(y);
      Tensor scaled = multiply_scalar(down);
      down.reset();
      y = std::move(scaled);
    }
    return y;
  }
};

/// FalconH1DecoderLayer
struct FalconH1Layer {
  FalconH1Mlp feed_forward;
  Mamba2Mixer mamba;
  FalconH1Attention self_attn;
  RmsNorm input_layernorm, pre_ff_layernorm;

  FalconH1Layer(ModuleBuilder& b, const FalconH1Spec& spec, const RunSpec& run, bool /*sliding*/,
                std::shared_ptr<const Tensor> mup_vector = nullptr)
      : feed_forward(b.scope("feed_forward", [&] { return FalconH1Mlp(b, spec); })),
        mamba(b.scope("mamba", [&] { return Mamba2Mixer(b, spec.mamba, spec.hidden_size, spec.hidden_act); })),
        self_attn(b.scope("self_attn", [&] { return FalconH1Attention(b, spec, run); })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        pre_ff_layernorm(b, "pre_ff_layernorm", spec.hidden_size) {
    mamba.mup_vector = std::move(mup_vector);
  }

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    Tensor residual = input;
    Tensor hidden_states = input_layernorm(input);
    Tensor mamba_hidden_states = mamba.forward(hidden_states, positions.recurrent_mask, cache);
    mamba_hidden_states = multiply_scalar(mamba_hidden_states);
    AttentionResult attention;
    {
      const Tensor scaled = multiply_scalar(hidden_states);
      attention = self_attn.forward(scaled, positions, mask, cache);
    }
    attention.output = multiply_scalar(attention.output);
    hidden_states = mamba_hidden_states + attention.output;
    hidden_states = residual + hidden_states;
    residual = hidden_states;
    hidden_states = pre_ff_layernorm(hidden_states);
    hidden_states = feed_forward.forward(hidden_states);
    hidden_states = residual + hidden_states;
    drop(residual, mamba_hidden_states, attention.output, attention.weights);
    return hidden_states;
  }
};

}  // namespace

std::unique_ptr<Model> build_falcon_h1(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<FalconH1Spec>();
  const auto mup_vectors = std::make_shared<std::vector<std::shared_ptr<Tensor>>>();
  DecoderPlan plan = decoder_plan<FalconH1Layer>(spec, run);
  plan.layer = [&spec, &run, mup_vectors](ModuleBuilder& b, std::int64_t,
                                          bool sliding) -> std::unique_ptr<DecoderLayer> {
    mup_vectors->push_back(std::make_shared<Tensor>());
    return std::make_unique<DecoderLayerOf<FalconH1Layer>>(b, spec, run, sliding, mup_vectors->back());
  };
  // Registered with every layer when all are there; model.buffers() gives them before the rotary module's two.
  plan.late_buffers = [&spec, mup_vectors](ModuleBuilder& b) {
    const std::int64_t width = spec.mamba.intermediate_size() + spec.mamba.conv_dim() + spec.mamba.num_heads;
    for (const std::shared_ptr<Tensor>& each : *mup_vectors) *each = b.buffer({1, 1, width}, b.dtype);
    const auto layers = static_cast<std::ptrdiff_t>(mup_vectors->size());
    std::rotate(b.buffers.end() - layers - 2, b.buffers.end() - layers, b.buffers.end());
  };
  plan.embedding = embedding_of<MultipliedEmbedding>(spec);
  plan.norm = norm_of<RmsNorm>(spec, "final_layernorm");
  plan.masks = MaskPlan::parallel();
  plan.logits = LogitsChange::kMultiplied;
  plan.holds_layer_outputs = true;
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
