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
#include "memcalc/families/mamba/selective_scan.h"
#include "memcalc/models/causal_convolution.h"
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
struct JambaMixer {
  std::int64_t state_size, time_step_rank;
  std::string activation;
  CausalConvolution conv1d;
  Linear in_proj, x_proj, dt_proj;
  Tensor A_log, D;  // NOLINT(readability-identifier-naming): the module's names
  Linear out_proj;
  RmsNorm dt_layernorm, b_layernorm, c_layernorm;

  JambaMixer(ModuleBuilder& b, const JambaSpec& spec)
      : state_size(spec.state_size),
        time_step_rank(spec.time_step_rank),
        activation(spec.hidden_act),
        conv1d(b, "conv1d", spec.mixer_width, spec.conv_kernel, spec.conv_bias),
        in_proj(b, "in_proj", spec.hidden_size, 2 * spec.mixer_width, spec.projection_bias),
        x_proj(b, "x_proj", spec.mixer_width, spec.time_step_rank + 2 * spec.state_size, false),
        dt_proj(b, "dt_proj", spec.time_step_rank, spec.mixer_width),
        A_log(b.parameter_before("A_log", {spec.mixer_width, spec.state_size}, "conv1d.weight")),
        D(b.parameter_before("D", {spec.mixer_width}, "conv1d.weight")),
        out_proj(b, "out_proj", spec.mixer_width, spec.hidden_size, spec.projection_bias),
        dt_layernorm(b, "dt_layernorm", spec.time_step_rank),
        b_layernorm(b, "b_layernorm", spec.state_size),
        c_layernorm(b, "c_layernorm", spec.state_size) {}

  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache) const {
    return hooked_mixer(*this, x, [&](const Tensor& input) { return mix(input, attention_mask, cache); });
  }

 private:
  [[nodiscard]] Tensor mix(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache) const {
    const DType dtype = x.dtype();
    LinearStates states;
    Tensor hidden_states, projected_states, A, hidden_states_B_C, gate, time_step, B, C, time_proj_bias, final_state,
        scan_output;
    const Locals locals(hidden_states, projected_states, A, hidden_states_B_C, gate, time_step, B, C, time_proj_bias,
                        final_state, scan_output);
    hidden_states = without_padding(x, attention_mask);
    projected_states = transpose(in_proj(hidden_states), 1, 2);
    A = negate(exponential(to_dtype(A_log, DType::kFloat32)));
    {
      std::vector<Tensor> halves = split(projected_states, 1, 2);
      hidden_states_B_C = std::move(halves[0]);
      gate = std::move(halves[1]);
    }
    hidden_states_B_C = conv1d(hidden_states_B_C, activation, cache != nullptr ? &states : nullptr);
    hidden_states_B_C = without_padding(transpose(hidden_states_B_C, 1, 2), attention_mask);
    {
      const std::array<std::int64_t, 3> sizes = {time_step_rank, state_size, state_size};
      std::vector<Tensor> parts = split_with_sizes(x_proj(hidden_states_B_C), 2, sizes);
      time_step = std::move(parts[0]);
      B = std::move(parts[1]);
      C = std::move(parts[2]);
    }
    time_step = dt_layernorm(time_step);
    B = b_layernorm(B);
    C = c_layernorm(C);
    time_step = matmul(dt_proj.weight, transpose(time_step, 1, 2));
    time_proj_bias = to_dtype(dt_proj.bias, DType::kFloat32);
    scan_output = selective_scan(transpose(hidden_states_B_C, 1, 2), time_step, A, B, C, to_dtype(D, DType::kFloat32),
                                 gate, time_proj_bias, cache != nullptr ? &final_state : nullptr);
    if (cache != nullptr) {
      states.update_recurrent_state(final_state);
      states.keep(*cache);
    }
    return out_proj(to_dtype(transpose(scan_output, 1, 2), dtype));
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
