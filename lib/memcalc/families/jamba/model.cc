// Jamba: transformers models/jamba/modeling_jamba.py, as transformers' own code computes it where mamba-ssm and
// causal-conv1d are not installed.
// MIRRORS(transformers, "models/jamba/modeling_jamba.py", "5.17.0")
#include "memcalc/families/jamba/spec.h"

#include <array>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/families/mamba/mixer.h"
#include "memcalc/models/experts.h"
#include "memcalc/models/hybrid_layer.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// JambaMambaMixer: MambaMixer whose time steps, B and C are normalised.
struct JambaMixer : MambaMixer {
  RmsNorm dt_layernorm, b_layernorm, c_layernorm;

  JambaMixer(ModuleBuilder& b, const JambaSpec& spec)
      : MambaMixer(b, {.hidden_size = spec.hidden_size,
                       .width = spec.mixer_width,
                       .state_size = spec.state_size,
                       .conv_kernel = spec.conv_kernel,
                       .time_step_rank = spec.time_step_rank,
                       .conv_bias = spec.conv_bias,
                       .projection_bias = spec.projection_bias,
                       .activation = spec.hidden_act}),
        dt_layernorm(b, "dt_layernorm", spec.time_step_rank),
        b_layernorm(b, "b_layernorm", spec.state_size),
        c_layernorm(b, "c_layernorm", spec.state_size) {}

  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache) const {
    const auto nothing = [] {};
    return mixed(x, attention_mask, cache, nothing, [&](Tensor& time_step, Tensor& b, Tensor& c) {
      time_step = dt_layernorm(time_step);
      b = b_layernorm(b);
      c = c_layernorm(c);
    });
  }
};

/// JambaSparseMoeBlock
struct JambaMixture {
  std::int64_t top_k;
  Linear router;
  Experts experts;

  JambaMixture(ModuleBuilder& b, const JambaSpec& spec)
      : top_k(spec.experts.per_token),
        router(b, "router", spec.hidden_size, spec.experts.count, false),
        experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {}); })) {}

  [[nodiscard]] Tensor forward(const Tensor& input) const {
    Tensor hidden_states = view(input, {-1, input.size(-1)});
    const Routing routing = experts.local(route(hidden_states));
    hidden_states = experts.forward(hidden_states, routing.top_k_index, routing.top_k_weights);
    return reshape(hidden_states, input.shape());
  }

 private:
  [[nodiscard]] Routing route(const Tensor& hidden_states) const {
    Tensor router_logits = router(hidden_states);
    Tensor routing_weights = softmax(router_logits, DType::kFloat32);
    auto [top_k_weights, top_k_index] = topk(routing_weights, top_k);
    Tensor cast = to_dtype(top_k_weights, hidden_states.dtype());
    drop(routing_weights, top_k_weights);
    return {std::move(router_logits), std::move(cast), std::move(top_k_index)};
  }
};

struct JambaAttention : RotaryAttention {
  JambaAttention(ModuleBuilder& b, const JambaSpec& spec, const RunSpec& run)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), /*sliding=*/false, /*qkv_bias=*/false,
                        /*output_bias=*/false) {
    rotates = false;
  }
};

using JambaMixing = std::variant<JambaMixer, JambaAttention>;
using JambaFeedForward = DenseOrMixture<JambaMixture>;

/// JambaMambaDecoderLayer, JambaAttentionDecoderLayer
struct JambaLayer {
  JambaMixing mixing;
  JambaFeedForward feed_forward;
  RmsNorm input_layernorm, pre_ff_layernorm;

  JambaLayer(ModuleBuilder& b, const JambaSpec& spec, const RunSpec& run, bool /*sliding*/, LayerIndex index)
      : mixing(mixing_of(b, spec, run, spec.linear_layers[static_cast<std::size_t>(index.value)])),
        feed_forward(b.scope("feed_forward",
                             [&] {
                               return spec.dense_layers[static_cast<std::size_t>(index.value)]
                                          ? JambaFeedForward{GatedMlp(b, spec)}
                                          : JambaFeedForward{JambaMixture(b, spec)};
                             })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        pre_ff_layernorm(b, "pre_ff_layernorm", spec.hidden_size) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    const auto mix = [&](const Tensor& x) { return mixed(x, positions, mask, cache); };
    return forward_of_hybrid(input, input_layernorm, mix, pre_ff_layernorm, feed_forward);
  }

 private:
  [[nodiscard]] static JambaMixing mixing_of(ModuleBuilder& b, const JambaSpec& spec, const RunSpec& run,
                                             bool is_linear) {
    if (is_linear) return b.scope("mamba", [&] { return JambaMixing{JambaMixer(b, spec)}; });
    return b.scope("self_attn", [&] { return JambaMixing{JambaAttention(b, spec, run)}; });
  }

  [[nodiscard]] AttentionResult mixed(const Tensor& hidden_states, const RotaryPositions& positions, const Tensor& mask,
                                      KeyValueCache* cache) const {
    if (const auto* mixer = std::get_if<JambaMixer>(&mixing)) return {mixer->forward(hidden_states, mask, cache), {}};
    return std::get<JambaAttention>(mixing).forward(hidden_states, positions, mask, cache);
  }
};

}  // namespace

std::unique_ptr<Model> build_jamba(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  if (run.fine_tuning.quantization != Quantization::kNone) {
    throw Error(ErrorCode::kUnsupported,
                "quantize: Jamba's mixers multiply by dt_proj.weight itself, for which a packed weight does not serve; "
                "accepted: 16-bit weights");
  }
  const auto& spec = architecture.as<JambaSpec>();
  auto plan = decoder_plan<JambaLayer>(spec, run);
  plan.masks = MaskPlan::hybrid(spec.linear_layers);
  plan.rotary_dim = 0;
  plan.norm = norm_of<RmsNorm>(spec, "final_layernorm");
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
