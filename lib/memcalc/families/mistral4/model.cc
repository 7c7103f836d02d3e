// Mistral 4's text model: transformers models/mistral4/modeling_mistral4.py.
// MIRRORS(transformers, "models/mistral4/modeling_mistral4.py", "5.17.0")
#include "memcalc/families/mistral4/spec.h"

#include <memory>
#include <utility>

#include "memcalc/families/deepseek/latent.h"
#include "memcalc/models/position_scale.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct Mistral4Attention : LatentAttention {
  Mistral4Attention(ModuleBuilder& b, const Mistral4Spec& spec, const RunSpec& run, bool)
      : LatentAttention(b, spec, run, rotation_of_heads(spec.rope_interleave)) {
    scale_of_queries = position_scale;
    rotated_key_dies_first = true;
  }
};

/// Mistral4TopkRouter: DeepSeek-V3's groups over a softmax in the weights' own type.
struct Mistral4Router {
  GroupedChoice choice;
  RouterWeight weight;

  Mistral4Router(ModuleBuilder& b, const Mistral4Spec& spec) : choice(spec), weight(b, spec) {}

  [[nodiscard]] Routing forward(const Tensor& input) const {
    ActiveWrappers wrappers(weight.wrapped.get());
    Tensor hidden_states, scores;
    GroupedChoiceVariables own;
    const Locals locals(hidden_states, scores, own.group_scores, own.group_idx, own.group_mask, own.score_mask,
                        own.scores_for_choice, own.denominator);
    hidden_states = view(input, {-1, input.size(-1)});
    Tensor router_logits = linear(hidden_states, wrappers.read(weight.parameter), {});
    scores = softmax(router_logits);
    return choose_in_groups(choice, std::move(router_logits), scores, scores, own);
  }
};

struct Mistral4Layer
    : DenseFirstLayer<Mistral4Spec, Mistral4Attention, MixtureWithShared<Mistral4Spec, Mistral4Router>> {
  Mistral4Layer(ModuleBuilder& b, const Mistral4Spec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : DenseFirstLayer(b, spec, run, sliding, index, /*mlp_bias=*/false) {}
};

}  // namespace

std::unique_ptr<Model> build_mistral4(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<Mistral4Spec>();
  return std::make_unique<RotaryDecoder>(spec, run, builder, decoder_plan<Mistral4Layer>(spec, run));
}

}  // namespace memcalc
