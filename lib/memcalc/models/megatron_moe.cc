// megatron/core/transformer/moe/{moe_layer,token_dispatcher,experts,shared_experts}.py (core_r0.14.0): the all-to-all
// dispatcher with fused permutation and TransformerEngine's grouped products.
// MIRRORS(megatron, "core/transformer/moe/experts.py", "0.14.0")
// MIRRORS(megatron, "core/transformer/moe/moe_layer.py", "0.14.0")
// MIRRORS(megatron, "core/transformer/moe/shared_experts.py", "0.14.0")
// MIRRORS(megatron, "core/transformer/moe/token_dispatcher.py", "0.14.0")
#include <cmath>

#include "memcalc/models/megatron_gpt.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/tensor_parallel.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

constexpr Operator kAllToAll{"c10d::alltoall_base_"}, kSortChunks{"megatron::sort_chunks_by_idxs"};
constexpr Operator kGather{"c10d::_allgather_base_"}, kReduceScatter{"c10d::_reduce_scatter_base_"};

/// TEGroupedMLP: a weight for each local expert.
struct GroupedMlp {
  TeLinear linear_fc1, linear_fc2;
  std::int64_t experts = 0;

  GroupedMlp(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory)
      : experts(config.moe->experts.count / config.parallel.expert) {
    const std::int64_t ffn = config.moe->experts.intermediate_size / config.expert_tensor;
    linear_fc1 = {
        .memory = &memory, .in = config.hidden_size, .out = (config.swiglu ? 2 : 1) * ffn, .split_ranks = false};
    linear_fc2 = {.memory = &memory, .in = ffn, .out = config.hidden_size, .split_ranks = false};
    for (const auto& [name, layer] : {std::pair{"linear_fc1", &linear_fc1}, std::pair{"linear_fc2", &linear_fc2}}) {
      b.scope(std::string("experts.") + name, [&, layer = layer] {
        for (std::int64_t i = 0; i < experts; ++i) {
          const Tensor weight = b.parameter("weight" + std::to_string(i), {layer->out, layer->in});
        }
        return 0;
      });
    }
  }
  [[nodiscard]] Tensor forward(const Tensor& rows, const Tensor& probabilities) const {
    Tensor intermediate = te_grouped_linear(linear_fc1, rows, experts);
    intermediate = fused_weighted_swiglu(intermediate, probabilities);
    return te_grouped_linear(linear_fc2, intermediate, experts);
  }
};

class MoeLayer : public MegatronMlpLayer {
 public:
  MoeLayer(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory)
      : config_(config), moe_(*config.moe), ep_(config.parallel.expert), tp_(config.expert_tensor) {
    router_weight_ = b.parameter("router.weight", {moe_.experts.count, config.hidden_size});
    experts_ = std::make_unique<GroupedMlp>(b, config, memory);
    if (moe_.shared_intermediate_size > 0) {
      shared_experts_ = b.scope("shared_experts", [&] {
        return std::make_unique<MegatronMlp>(b, config, memory, moe_.shared_intermediate_size, false);
      });
    }
  }

  [[nodiscard]] Tensor forward(const Tensor& hidden_states) const override {
    const Tensor residual = hidden_states;
    const std::int64_t tokens = hidden_states.size(0) * hidden_states.size(1);
    const std::int64_t width = config_.hidden_size;
    Tensor probabilities = megatron_router(
        hidden_states, {moe_.experts.count, moe_.experts.per_token, config_.options.expert_capacity.has_value()});
    // dispatch_preprocess, token_dispatch: the rows that are sent stay as long as this function runs.
    const std::int64_t sent = rows_sent(tokens), received = rows_received(sent);
    PermutedTokens permuted = te_permute(view(hidden_states, {tokens, width}), probabilities, sent);
    probabilities.reset();
    const bool sends = ep_ > 1;
    const Tensor dispatched =
        sends ? exchange(permuted.rows, {received, width}, kAllToAll, Collective::kAllToAll, ep_) : permuted.rows;
    Tensor of_rows = sends ? exchange(permuted.probabilities, {received}, kAllToAll, Collective::kAllToAll, ep_)
                           : permuted.probabilities;
    Tensor shared;
    if (shared_experts_) shared = shared_experts_->forward(residual);
    Tensor output;
    {  // dispatch_postprocess, experts, combine_preprocess
      const bool sorts = experts_->experts > 1;
      Tensor rows = dispatched;
      const std::int64_t all = received * tp_;
      if (tp_ > 1) {
        rows = exchange(rows, {all, width}, kGather, Collective::kAllGather, tp_);
        of_rows = exchange(of_rows, {all}, kGather, Collective::kAllGather, tp_);
      }
      if (sorts) {
        rows = exchange(rows, {all, width}, kSortChunks);
        of_rows = exchange(of_rows, {all}, kSortChunks);
      }
      const Tensor expert_output = experts_->forward(rows, of_rows);
      output = sorts ? exchange(expert_output, expert_output.shape(), kSortChunks) : expert_output;
      if (tp_ > 1) output = exchange(output, {received, width}, kReduceScatter, Collective::kReduceScatter, tp_);
    }
    {  // combine
      const Tensor argument = output;
      if (sends) output = exchange(output, {sent, width}, kAllToAll, Collective::kAllToAll, ep_);
      output = te_unpermute(output, permuted.map, tokens);
      output = view(std::move(output), hidden_states.shape());
      if (shared.defined()) output = std::move(output) + shared;
    }
    return output;
  }

 private:
  /// Rows that this rank's tokens make: `per_token` each, or every expert's capacity (moe_utils.py, get_capacity).
  [[nodiscard]] std::int64_t rows_sent(std::int64_t tokens) const {
    const std::int64_t routed = checked_multiply(tokens, moe_.experts.per_token);
    if (!config_.options.expert_capacity) return routed;
    const double capacity =
        static_cast<double>(routed) / static_cast<double>(moe_.experts.count) * *config_.options.expert_capacity;
    return checked_multiply(static_cast<std::int64_t>(std::ceil(capacity)), moe_.experts.count);
  }
  /// Rows for this rank's experts: of padded experts always as many; else as many as the fullest rank gets.
  [[nodiscard]] std::int64_t rows_received(std::int64_t sent) const {
    if (config_.options.expert_capacity) return sent;
    return static_cast<std::int64_t>(std::ceil(static_cast<double>(sent) * config_.options.expert_imbalance));
  }

  const MegatronConfig& config_;
  const MegatronExperts& moe_;
  std::int64_t ep_, tp_;
  Tensor router_weight_;
  std::unique_ptr<GroupedMlp> experts_;
  std::unique_ptr<MegatronMlp> shared_experts_;
};

}  // namespace

std::unique_ptr<MegatronMlpLayer> build_moe_layer(ModuleBuilder& b, const MegatronConfig& config,
                                                  MegatronMemory& memory) {
  return std::make_unique<MoeLayer>(b, config, memory);
}

}  // namespace memcalc
