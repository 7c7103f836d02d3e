// Mixtral: transformers models/mixtral/modeling_mixtral.py.
// MIRRORS(transformers, "models/mixtral/modeling_mixtral.py", "5.17.0")
#include "memcalc/families/mixtral/spec.h"
#include "memcalc/models/expert_loop.h"
#include "memcalc/models/experts.h"
#include "memcalc/models/megatron_config.h"
#include "memcalc/models/routers.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct MixtralAttention : RotaryAttention {
  MixtralAttention(ModuleBuilder& b, const MixtralSpec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding, /*qkv_bias=*/false,
                        /*output_bias=*/false) {}
};

struct MixtralTopKRouter {
  std::int64_t top_k;
  RouterWeight weight;

  MixtralTopKRouter(ModuleBuilder& b, const MixtralSpec& spec) : top_k(spec.experts.per_token), weight(b, spec) {}

  [[nodiscard]] Routing forward(const Tensor& input) const {
    ActiveWrappers wrappers(weight.wrapped.get());
    const Tensor hidden_states = reshape(input, {-1, input.size(-1)});
    Tensor router_logits = linear(hidden_states, wrappers.read(weight.parameter), {});
    Tensor router_probs = softmax(to_dtype(router_logits, DType::kFloat32));
    if (router_logits.tape().behaviors.mixtral_rebinds_logits) router_logits = std::move(router_probs);
    const Tensor& chosen_from = router_probs.defined() ? router_probs : router_logits;
    auto [router_top_value, router_indices] = topk(chosen_from, top_k);
    router_top_value = divide_in_place(router_top_value, sum_over(router_top_value, -1, true));
    return {std::move(router_logits), std::move(router_top_value), std::move(router_indices)};
  }
};

struct MixtralSparseMoeBlock {
  MixtralTopKRouter gate;
  Experts experts;

  MixtralSparseMoeBlock(ModuleBuilder& b, const MixtralSpec& spec)
      : gate(b.scope("gate", [&] { return MixtralTopKRouter(b, spec); })),
        experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {}); })) {}

  [[nodiscard]] Tensor forward(const Tensor& input) const {
    Tensor hidden_states = view(input, {-1, input.size(-1)});
    const Routing routing = experts.local(gate.forward(hidden_states));
    hidden_states = experts.forward(hidden_states, routing.top_k_index, routing.top_k_weights);
    return reshape(hidden_states, input.shape());
  }
};

struct MixtralMixture : FusedOrLoop<MixtralSparseMoeBlock> {
  MixtralMixture(ModuleBuilder& b, const MixtralSpec& spec) : FusedOrLoop(b, spec, true, kMixtralExperts) {}
};

using MixtralLayer = PreNormLayer<MixtralSpec, MixtralAttention, RmsNorm, MixtralMixture>;

}  // namespace

std::unique_ptr<Model> build_mixtral(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<MixtralSpec>();
  auto plan = decoder_plan<MixtralLayer>(spec, run);
  plan.position_ids_first = true;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

void mixtral_to_megatron(const Architecture& architecture, MegatronConfig& config) {
  const auto& spec = architecture.as<MixtralSpec>();
  take_decoder(config, spec);
  config.moe =
      MegatronExperts{spec.experts, 0, std::vector<bool>(static_cast<std::size_t>(spec.num_hidden_layers), false)};
}

}  // namespace memcalc
