// ERNIE 4.5 with experts: transformers models/ernie4_5_moe/modeling_ernie4_5_moe.py.
// MIRRORS(transformers, "models/ernie4_5_moe/modeling_ernie4_5_moe.py", "5.17.0")
#include <optional>
#include <utility>

#include "memcalc/families/ernie4_5_moe/spec.h"
#include "memcalc/models/experts.h"
#include "memcalc/models/routers.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct Ernie45MoeAttention : RotaryAttention {
  Ernie45MoeAttention(ModuleBuilder& b, const Ernie45MoeSpec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, 0), sliding, spec.use_bias, spec.use_bias) {
    rotation = rotate_neighbours_in_float32;
  }
};

/// Its weight and the statistics' bias are float32 in any model (_keep_in_fp32_modules_strict).
struct Ernie45MoeRouter {
  std::int64_t top_k;
  Tensor weight, e_score_correction_bias;
  std::shared_ptr<WrappedModule> wrapped;  // null: no adapters

  Ernie45MoeRouter(ModuleBuilder& b, const Ernie45MoeSpec& spec) : top_k(spec.experts.per_token) {
    const DType dtype = std::exchange(b.dtype, DType::kFloat32);
    weight = b.parameter("weight", {spec.experts.count, spec.hidden_size});
    e_score_correction_bias = b.frozen_parameter("moe_statics.e_score_correction_bias", {1, spec.experts.count});
    b.dtype = dtype;
    wrapped = remember_router(b, 2);
  }

  [[nodiscard]] Routing forward(const Tensor& hidden_states) const {
    ActiveWrappers wrappers(wrapped.get());
    Tensor router_logits, routing_weights, values, selected_experts;
    const Locals locals(router_logits, routing_weights, values, selected_experts);
    {
      const WithoutAutocast without_autocast(hidden_states.tape().modes.autocast);
      router_logits = float32_linear(hidden_states, weight, wrappers);
      routing_weights = softmax(router_logits, DType::kFloat32);
      {
        const Tensor corrected = routing_weights + squeeze(e_score_correction_bias, 0);
        Selection chosen = topk(corrected, top_k);
        values = std::move(chosen.values);
        selected_experts = std::move(chosen.indices);
      }
      routing_weights = gather(routing_weights, selected_experts);
      Tensor least = clamp_above(sum_over(routing_weights, -1, true));  // one bound, the lower one
      routing_weights = divide_both(routing_weights, std::move(least));
    }
    routing_weights = to_dtype(routing_weights, hidden_states.dtype());
    return {router_logits, routing_weights, selected_experts};
  }
};

struct Ernie45MoeSparseMoeBlock {
  Ernie45MoeRouter gate;
  Experts experts;
  std::optional<GatedMlp> shared_experts;

  Ernie45MoeSparseMoeBlock(ModuleBuilder& b, const Ernie45MoeSpec& spec)
      : gate(b.scope("gate", [&] { return Ernie45MoeRouter(b, spec); })),
        experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {}); })) {
    if (spec.moe_num_shared_experts == 0) return;
    const std::int64_t width = checked_multiply(spec.experts.intermediate_size, spec.moe_num_shared_experts);
    shared_experts = b.scope("shared_experts", [&] { return GatedMlp(b, spec, width, spec.use_bias); });
  }

  [[nodiscard]] Tensor forward(const Tensor& input) const {
    Tensor shared_output, final_hidden_states;
    const Tensor hidden_states = view(input, {-1, input.size(-1)});
    if (shared_experts) shared_output = shared_experts->forward(hidden_states);
    Routing routing = experts.local(gate.forward(hidden_states));
    const Locals locals(routing.router_logits, shared_output, routing.top_k_weights, routing.top_k_index,
                        final_hidden_states);
    final_hidden_states = experts.forward(hidden_states, routing.top_k_index, routing.top_k_weights);
    if (shared_experts) final_hidden_states = final_hidden_states + shared_output;
    final_hidden_states = reshape(final_hidden_states, input.shape());
    return to_dtype(final_hidden_states, hidden_states.dtype());
  }
};

using Ernie45MoeMlp = DenseOrMixture<Ernie45MoeSparseMoeBlock>;

struct Ernie45MoeLayer : PreNormLayer<Ernie45MoeSpec, Ernie45MoeAttention, RmsNorm, Ernie45MoeMlp> {
  Ernie45MoeLayer(ModuleBuilder& b, const Ernie45MoeSpec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : PreNormLayer(b, spec, run, sliding, [&] {
          const bool dense = spec.dense_layers[static_cast<std::size_t>(index.value)];
          return dense ? Ernie45MoeMlp{GatedMlp(b, spec, spec.use_bias)}
                       : Ernie45MoeMlp{Ernie45MoeSparseMoeBlock(b, spec)};
        }) {}
};

}  // namespace

std::unique_ptr<Model> build_ernie4_5_moe(const Architecture& architecture, const RunSpec& run,
                                          ModuleBuilder& builder) {
  const auto& spec = architecture.as<Ernie45MoeSpec>();
  auto plan = decoder_plan<Ernie45MoeLayer>(spec, run);
  plan.float32_positions = true;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
