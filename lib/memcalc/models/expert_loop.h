// Mixtures of experts before transformers 5.0: each expert an MLP of its own nn.Linear modules, run one after the other
// on the tokens that chose it. transformers 4.57.6 models/mixtral/modeling_mixtral.py,
// models/qwen3_moe/modeling_qwen3_moe.py.
// MIRRORS(transformers, "models/mixtral/modeling_mixtral.py", "4.57.6")
// MIRRORS(transformers, "models/qwen3_moe/modeling_qwen3_moe.py", "4.57.6")
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

/// …SparseMoeBlock with its router.
struct ExpertLoop {
  /// Of the three matrices of an expert, in the order in which they are made.
  enum Matrix : std::uint8_t { kGate, kUp, kDown };
  struct Names {
    std::array<Matrix, 3> order;
    std::array<std::string_view, 3> of_order;  // "w1", "w2", "w3"
  };
  struct Expert {
    std::array<Linear, 3> matrices;  // by Matrix
  };

  Linear gate;
  std::vector<Expert> experts;
  std::int64_t top_k;
  std::int64_t layer;  // among those with experts
  bool norm_topk_prob;
  std::string act_fn;

  ExpertLoop(ModuleBuilder& b, const RotaryDecoderSpec& spec, const ExpertsSpec& sizes, bool norm_topk_prob,
             const Names& names);
  /// Experts get as many tokens as a router without training gives them (token_shares.h). Returns the router's logits,
  /// too.
  [[nodiscard]] Tensor forward(const Tensor& input, Tensor& router_logits) const;

 private:
  [[nodiscard]] Tensor run(const Expert& expert, const Tensor& x) const;
};

inline constexpr ExpertLoop::Names kMixtralExperts = {{ExpertLoop::kGate, ExpertLoop::kDown, ExpertLoop::kUp},
                                                      {"w1", "w2", "w3"}};
inline constexpr ExpertLoop::Names kQwenExperts = {{ExpertLoop::kGate, ExpertLoop::kUp, ExpertLoop::kDown},
                                                   {"gate_proj", "up_proj", "down_proj"}};

/// A mixture as the versions have it: a loop, or `Fused`, whose experts are in one tensor.
template <typename Fused>
struct FusedOrLoop {
  std::variant<Fused, ExpertLoop> block;

  template <typename Spec>
  FusedOrLoop(ModuleBuilder& b, const Spec& spec, bool norm_topk_prob, const ExpertLoop::Names& names)
      : block(b.tape.behaviors.experts == ExpertForm::kLoop
                  ? std::variant<Fused, ExpertLoop>(ExpertLoop(b, spec, spec.experts, norm_topk_prob, names))
                  : std::variant<Fused, ExpertLoop>(Fused(b, spec))) {}

  /// The loop returns its router's logits beside its result.
  [[nodiscard]] Tensor forward(const Tensor& x, Tensor& router_logits) const {
    if (const auto* loop = std::get_if<ExpertLoop>(&block)) return loop->forward(x, router_logits);
    return std::get<Fused>(block).forward(x);
  }
};

}  // namespace memcalc
