// What transformers' mixtures of experts share: the weights of all experts of a layer in one tensor each, and the
// forward pass over them of integrations/moe.py.
// MIRRORS(transformers, "integrations/moe.py", "5.17.0")
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "memcalc/models/packed_experts.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/spec/decoder_spec.h"
#include "memcalc/symbolic/ops/sort.h"

namespace memcalc {

/// What a router returns. Members die in this order.
struct Routing {
  Tensor router_logits;  // [tokens, experts]
  Tensor top_k_weights;  // [tokens, k]
  Tensor top_k_index;    // [tokens, k] int64

  Routing() = default;
  Routing(Tensor logits, Tensor weights, Tensor index)
      : router_logits(std::move(logits)), top_k_weights(std::move(weights)), top_k_index(std::move(index)) {}
  Routing(Routing&&) = default;
  Routing& operator=(Routing&&) = default;
  ~Routing() { drop(router_logits, top_k_weights, top_k_index); }
};

/// The beginning of every grouped_mm forward: tokens, each as often as it has experts, sorted by expert. Its members
/// are the locals of that function.
struct SortedTokens {
  Tensor token_idx;  // 5.0 to 5.5
  Tensor sample_weights, expert_ids;
  Selection sorted;
  Tensor& expert_ids_g = sorted.values;
  Tensor& perm = sorted.indices;
  Tensor inv_perm;  // 5.0 to 5.5; later it is made after the products
  Tensor selected_hidden_states_g, sample_weights_g, histc_input, tokens_per_expert, offsets, sentinel_mask;

  SortedTokens(const Tensor& hidden_states, const Tensor& top_k_index, const Tensor& top_k_weights,
               std::int64_t num_experts);
};

/// A …Experts module: act(gate) * up of each expert, then down. Without a gate gate_up_proj is up_proj.
struct Experts {
  using ApplyGate = Tensor (*)(const Tensor& gate_up, std::string_view act_fn);

  /// use_experts_implementation's options.
  struct Options {
    bool is_transposed = false;  // weights [experts, in, out]
    bool has_bias = false;
    bool has_gate = true;            // else up_proj, the activation, down_proj
    std::int64_t width = 0;          // of what the experts take and give; 0: hidden_size
    ApplyGate apply_gate = nullptr;  // absent: _default_apply_gate
  };

  std::int64_t num_experts = 0;
  Tensor gate_up_proj, gate_up_proj_bias, down_proj, down_proj_bias;
  std::string act_fn;
  Options options;
  std::shared_ptr<PackedExperts> packed;  // null: weights as they are, without adapters

  Experts(ModuleBuilder& b, const RotaryDecoderSpec& spec, const ExpertsSpec& experts, const Options& options);

  /// Ranks among which the experts are shared out: each holds as many (train/parallel/expert_parallel.h).
  [[nodiscard]] std::int64_t ranks() const { return num_experts / gate_up_proj.size(0); }
  /// What the router hands to the experts of this rank, behind its hooks: EpRouterParallel masks the others.
  [[nodiscard]] Routing local(Routing routing) const;

  /// grouped_mm_experts_forward, the default: tokens are sorted by expert, each as often as it has experts. What it
  /// allocates depends on the number of tokens, not on the experts they chose.
  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const Tensor& top_k_index,
                               const Tensor& top_k_weights) const;

 private:
  [[nodiscard]] Tensor activated(const Tensor& projected) const;
  /// The experts that are here, whether all or some.
  [[nodiscard]] Tensor forward_grouped(const Tensor& hidden_states, const Tensor& top_k_index,
                                       const Tensor& top_k_weights, ActiveWrappers& wrappers) const;
  /// batched_mm_experts_forward, to which generate() switches after the prompt (_optimize_model_for_decode): the
  /// matrices of the chosen experts are copied, for each token and expert.
  [[nodiscard]] Tensor forward_batched(const Tensor& hidden_states, const Tensor& top_k_index,
                                       const Tensor& top_k_weights, ActiveWrappers& wrappers) const;
  /// fp8_grouped_mm_experts_forward and fp8_batched_mm_experts_forward, of FP8Experts (packed_experts.cc).
  [[nodiscard]] Tensor forward_grouped_fp8(const Tensor& hidden_states, const Tensor& top_k_index,
                                           const Tensor& top_k_weights) const;
  [[nodiscard]] Tensor forward_batched_fp8(const Tensor& hidden_states, const Tensor& top_k_index,
                                           const Tensor& top_k_weights) const;
};

/// _default_apply_gate
[[nodiscard]] Tensor default_apply_gate(const Tensor& gate_up, std::string_view act_fn);

/// The MLP of a layer that is either dense or a mixture.
template <typename Mixture>
struct DenseOrMixture {
  std::variant<GatedMlp, Mixture> mlp;

  [[nodiscard]] Tensor forward(const Tensor& x) const {
    return std::visit([&](const auto& module) { return module.forward(x); }, mlp);
  }
  /// Of a mixture that returns its router's logits, too.
  [[nodiscard]] Tensor forward(const Tensor& x, Tensor& router_logits) const requires requires(const Mixture& mixture) {
    mixture.forward(x, router_logits);
  }
  {
    if (const auto* mixture = std::get_if<Mixture>(&mlp)) return mixture->forward(x, router_logits);
    return std::get<GatedMlp>(mlp).forward(x);
  }
};

}  // namespace memcalc
