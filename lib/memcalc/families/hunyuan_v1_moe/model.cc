// Hunyuan V1 with experts: transformers models/hunyuan_v1_moe/modeling_hunyuan_v1_moe.py.
// MIRRORS(transformers, "models/hunyuan_v1_moe/modeling_hunyuan_v1_moe.py", "5.17.0")
#include "memcalc/families/hunyuan_v1_moe/spec.h"

#include <utility>

#include "memcalc/models/experts.h"
#include "memcalc/models/normed_attention.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// What `build` makes is in float32 whatever the module's type is.
template <typename Build>
auto in_float32(ModuleBuilder& b, Build build) {
  const DType before = std::exchange(b.dtype, DType::kFloat32);
  auto result = build();
  b.dtype = before;
  return result;
}

/// HunYuanMoEV1Gate: nn.Linear(…, dtype=torch.float32), which from_config and from_pretrained
/// (core_model_loading.py) leave so.
struct HunyuanGate {
  std::int64_t top_k;
  Linear wg;

  HunyuanGate(ModuleBuilder& b, const HunyuanMoeSpec& spec)
      : top_k(spec.experts.per_token),
        wg(in_float32(b, [&] { return Linear(b, "wg", spec.hidden_size, spec.experts.count, false); })) {}

  [[nodiscard]] Routing forward(const Tensor& input) const {
    Tensor hidden_states = reshape(input, {-1, input.size(-1)});
    if (wg.weight.dtype() == DType::kFloat32) hidden_states = to_dtype(hidden_states, DType::kFloat32);
    Tensor router_logits = wg(hidden_states);
    Tensor routing_weights = softmax(router_logits, DType::kFloat32);
    auto [values, selected_experts] = topk(routing_weights, top_k);
    routing_weights = std::move(values);
    routing_weights = divide_in_place(routing_weights, sum_over(routing_weights, -1, true));
    Tensor cast = to_dtype(routing_weights, router_logits.dtype());
    drop(hidden_states, routing_weights);
    return {std::move(router_logits), std::move(cast), std::move(selected_experts)};
  }
};

struct HunyuanMoe {
  HunyuanGate gate;
  Experts experts;
  GatedMlp shared_mlp;

  HunyuanMoe(ModuleBuilder& b, const HunyuanMoeSpec& spec)
      : gate(b.scope("gate", [&] { return HunyuanGate(b, spec); })),
        experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {}); })),
        shared_mlp(b.scope("shared_mlp", [&] { return GatedMlp(b, spec); })) {}

  [[nodiscard]] Tensor forward(const Tensor& input) const {
    Tensor hidden_states_mlp = shared_mlp.forward(input);
    const Tensor hidden_states = view(input, {-1, input.size(-1)});
    Routing routing = experts.local(gate.forward(hidden_states));
    Tensor final_hidden_states =
        reshape(experts.forward(hidden_states, routing.top_k_index, routing.top_k_weights), input.shape());
    Tensor result = final_hidden_states + hidden_states_mlp;
    drop(hidden_states_mlp, routing.router_logits, routing.top_k_weights, routing.top_k_index, final_hidden_states);
    return result;
  }
};

using HunyuanMoeLayer = PreNormLayer<HunyuanMoeSpec, RotatedNormedAttention, RmsNorm, HunyuanMoe>;

}  // namespace

std::unique_ptr<Model> build_hunyuan_moe(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<HunyuanMoeSpec>();
  return std::make_unique<RotaryDecoder>(spec, run, builder, decoder_plan<HunyuanMoeLayer>(spec, run));
}

}  // namespace memcalc
