// megatron/core/transformer/moe/{moe_layer,token_dispatcher,experts,shared_experts}.py (core_r0.14.0): the all-to-all
// and the all-gather dispatcher, permutation by TransformerEngine or by indices, experts' grouped products or one
// expert after another.
// MIRRORS(megatron, "core/transformer/moe/experts.py", "0.14.0")
// MIRRORS(megatron, "core/transformer/moe/moe_layer.py", "0.14.0")
// MIRRORS(megatron, "core/transformer/moe/shared_experts.py", "0.14.0")
// MIRRORS(megatron, "core/transformer/moe/token_dispatcher.py", "0.14.0")
#include <cmath>

#include "memcalc/models/megatron_gpt.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/megatron_permute.h"
#include "memcalc/symbolic/ops/tensor_parallel.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

constexpr Operator kAllToAll{"c10d::alltoall_base_"}, kSortChunks{"megatron::sort_chunks_by_idxs"};
constexpr Operator kGather{"c10d::_allgather_base_"}, kReduceScatter{"c10d::_reduce_scatter_base_"};

/// An expert's two matrices on this rank.
struct ExpertLayers {
  TeLinear linear_fc1, linear_fc2;

  ExpertLayers(const MegatronConfig& config, MegatronMemory& memory) {
    const std::int64_t ffn = config.moe->experts.intermediate_size / config.expert_tensor;
    linear_fc1 = {
        .memory = &memory, .in = config.hidden_size, .out = (config.swiglu ? 2 : 1) * ffn, .split_ranks = false};
    linear_fc2 = {.memory = &memory, .in = ffn, .out = config.hidden_size, .split_ranks = false};
  }
};

/// bias_act_func: gated, one kernel that takes the probabilities in; else a product with them that keeps both factors.
Tensor activate(const MegatronConfig& config, const Tensor& intermediate, const Tensor& probabilities) {
  if (config.swiglu) return fused_weighted_swiglu(intermediate, probabilities);
  Tensor activated = config.options.squared_relu ? squared_relu(intermediate) : gelu(intermediate);
  return to_dtype(std::move(activated) * unsqueeze(probabilities, -1), intermediate.dtype());
}

/// experts.py: of rows [n, h], an expert's beside each other, and their probabilities [n].
class LocalExperts {
 public:
  virtual ~LocalExperts() = default;
  [[nodiscard]] virtual Tensor forward(const Tensor& rows, const Tensor& probabilities) const = 0;
};

/// TEGroupedMLP: a weight for each local expert.
class GroupedMlp : public LocalExperts {
 public:
  GroupedMlp(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory, std::int64_t experts)
      : config_(config), layers_(config, memory), experts_(experts) {
    for (const auto& [name, layer] :
         {std::pair{"linear_fc1", &layers_.linear_fc1}, std::pair{"linear_fc2", &layers_.linear_fc2}}) {
      b.scope(std::string("experts.") + name, [&, layer = layer] {
        for (std::int64_t i = 0; i < experts; ++i) {
          const Tensor weight = b.parameter("weight" + std::to_string(i), {layer->out, layer->in});
        }
        return 0;
      });
    }
  }
  [[nodiscard]] Tensor forward(const Tensor& rows, const Tensor& probabilities) const override {
    Tensor intermediate = te_grouped_linear(layers_.linear_fc1, rows, experts_);
    intermediate = activate(config_, intermediate, probabilities);
    return te_grouped_linear(layers_.linear_fc2, intermediate, experts_);
  }

 private:
  const MegatronConfig& config_;
  ExpertLayers layers_;
  std::int64_t experts_;
};

/// SequentialMLP: an MLP for each local expert, of which the results are concatenated.
class SequentialMlp : public LocalExperts {
 public:
  SequentialMlp(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory, std::int64_t experts)
      : config_(config), layers_(config, memory), experts_(experts) {
    for (std::int64_t i = 0; i < experts; ++i) {
      b.scope("experts.local_experts." + std::to_string(i), [&] {
        for (const auto& [name, layer] :
             {std::pair{"linear_fc1", &layers_.linear_fc1}, std::pair{"linear_fc2", &layers_.linear_fc2}}) {
          b.scope(name, [&, layer = layer] {
            const Tensor weight = b.parameter("weight", {layer->out, layer->in});
            return 0;
          });
        }
        return 0;
      });
    }
  }
  [[nodiscard]] Tensor forward(const Tensor& rows, const Tensor& probabilities) const override {
    if (experts_ == 1) return of_one(rows, probabilities);
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(experts_), rows.size(0) / experts_);
    sizes.back() += rows.size(0) % experts_;
    const std::vector<Tensor> tokens = split_with_sizes(rows, 0, sizes);
    const std::vector<Tensor> shares = split_with_sizes(probabilities, 0, sizes);
    std::vector<Tensor> outputs;
    for (std::size_t i = 0; i < tokens.size(); ++i) outputs.push_back(of_one(tokens[i], shares[i]));
    return concatenate(outputs, 0);
  }

 private:
  [[nodiscard]] Tensor of_one(const Tensor& rows, const Tensor& probabilities) const {
    Tensor intermediate = te_linear(layers_.linear_fc1, rows);
    intermediate = activate(config_, intermediate, probabilities);
    return te_linear(layers_.linear_fc2, intermediate);
  }

  const MegatronConfig& config_;
  ExpertLayers layers_;
  std::int64_t experts_;
};

/// Rows permuted to experts by one of the two ways, and what brings them back.
struct Permutation {
  Tensor rows, probabilities, map;
};

class MoeLayer : public MegatronMlpLayer {
 public:
  MoeLayer(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory)
      : config_(config),
        memory_(memory),
        moe_(*config.moe),
        ep_(config.parallel.expert),
        tp_(config.expert_tensor),
        local_(moe_.experts.count / ep_) {
    router_weight_ = b.parameter("router.weight", {moe_.experts.count, config.hidden_size});
    if (config.options.groups_experts) {
      experts_ = std::make_unique<GroupedMlp>(b, config, memory, local_);
    } else {
      experts_ = std::make_unique<SequentialMlp>(b, config, memory, local_);
    }
    if (moe_.shared_intermediate_size > 0) {
      shared_experts_ = b.scope("shared_experts", [&] {
        return std::make_unique<MegatronMlp>(b, config, memory, moe_.shared_intermediate_size, false);
      });
    }
  }

  [[nodiscard]] Tensor forward(const Tensor& hidden_states) const override {
    const RouterShape shape{.experts = moe_.experts.count,
                            .per_token = moe_.experts.per_token,
                            .drops = config_.options.expert_capacity.has_value(),
                            .dtype = config_.options.routes_in_float32 ? DType::kFloat32 : hidden_states.dtype()};
    Tensor probabilities = megatron_router(memory_, hidden_states, shape);
    return config_.options.gathers_tokens ? gathered(hidden_states, std::move(probabilities))
                                          : exchanged(hidden_states, std::move(probabilities));
  }

 private:
  enum Order : std::uint8_t { kToExperts, kToRanks };

  /// MoEAlltoAllTokenDispatcher.
  [[nodiscard]] Tensor exchanged(const Tensor& hidden_states, Tensor probabilities) const {
    const Tensor residual = hidden_states;
    const std::int64_t tokens = hidden_states.size(0) * hidden_states.size(1);
    const std::int64_t width = config_.hidden_size;
    // dispatch_preprocess, token_dispatch: the rows that are sent stay as long as this function runs.
    const std::int64_t sent = rows_sent(tokens), received = rows_received(sent);
    const DType scores = probabilities.dtype();
    if (!config_.options.expert_capacity) {  // drop_and_pad: where experts are padded they are known
      exchange_token_counts(memory_.tape, tokens, moe_.experts.count, ep_ * tp_);
    }
    Permutation permuted = permute(view(hidden_states, {tokens, width}), probabilities, sent);
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
      const bool sorts = local_ > 1;
      Tensor rows = dispatched;
      const std::int64_t all = received * tp_;
      if (tp_ > 1) {
        rows = exchange(rows, {all, width}, kGather, Collective::kAllGather, tp_);
        of_rows = exchange(of_rows, {all}, kGather, Collective::kAllGather, tp_);
      }
      if (sorts) {
        rows = by_expert(rows, {all, width}, kToExperts);
        of_rows = by_expert(of_rows, {all}, kToExperts);
      }
      const Tensor expert_output = experts_->forward(rows, of_rows);
      output = sorts ? by_expert(expert_output, expert_output.shape(), kToRanks) : expert_output;
      if (tp_ > 1) output = reduced(output, scores, {received, width}, tp_);
    }
    {  // combine
      const Tensor argument = output;
      if (sends) output = exchange(output, {sent, width}, kAllToAll, Collective::kAllToAll, ep_);
      output = unpermute(output, permuted.map, tokens);
      output = view(std::move(output), hidden_states.shape());
      if (shared.defined()) output = std::move(output) + shared;
    }
    return output;
  }

  /// MoEAllGatherTokenDispatcher: every rank gathers the tokens of all, and takes what is routed to its experts.
  [[nodiscard]] Tensor gathered(const Tensor& hidden_states, Tensor probabilities) const {
    const std::int64_t ranks = ep_ * tp_, width = config_.hidden_size;
    const std::int64_t tokens = hidden_states.size(0) * hidden_states.size(1);
    const DType scores = probabilities.dtype();
    Tensor rows = view(hidden_states, {tokens, width});
    if (ranks > 1) {
      probabilities =
          exchange(probabilities, {tokens * ranks, moe_.experts.count}, kGather, Collective::kAllGather, ranks);
      rows = gather_in_global_buffer(memory_, rows, ranks);
    }
    Tensor shared;
    if (shared_experts_) shared = shared_experts_->forward(hidden_states);
    const std::int64_t all = rows.size(0);
    const std::int64_t routed = rows_received(checked_multiply(all, moe_.experts.per_token) / ep_);
    if (local_ < moe_.experts.count) {
      probabilities = exchange(probabilities, {all, local_}, aten::kClone);  // of local experts, contiguous
    }
    Tensor output;
    {                              // dispatch_postprocess, experts, combine_preprocess
      read_on_host(memory_.tape);  // local_map.sum(dim=0).long().cpu()
      const Permutation permuted = permute(rows, probabilities, routed);
      rows.reset();
      probabilities.reset();
      const Tensor expert_output = experts_->forward(permuted.rows, permuted.probabilities);
      output = unpermute(expert_output, permuted.map, all);
    }
    if (ranks > 1) output = reduced(output, scores, {tokens, width}, ranks);
    output = view(std::move(output), hidden_states.shape());
    if (shared.defined()) output = std::move(output) + shared;
    return output;
  }

  /// Chunks of each rank's rows for each local expert, put in the order of the experts or back. Where experts are
  /// padded all chunks are alike: view(...).transpose(0, 1).contiguous(), else sort_chunks_by_idxs.
  [[nodiscard]] Tensor by_expert(const Tensor& rows, const Shape& whole, Order to) const {
    if (!config_.options.expert_capacity) return exchange(rows, whole, kSortChunks);
    const std::int64_t ranks = ep_ * tp_, first = to == kToExperts ? ranks : local_;
    const std::int64_t second = ranks * local_ / first, chunk = whole[0] / (ranks * local_);
    const Tensor chunks = view(rows, {first, second, chunk, rows.elements() / whole[0]});
    return view(contiguous(transpose(chunks, 0, 1)), whole);
  }

  /// reduce_scatter_to_sequence_parallel_region, in the probabilities' type.
  [[nodiscard]] static Tensor reduced(const Tensor& x, DType scores, const Shape& shape, std::int64_t ranks) {
    const Tensor part = exchange(to_dtype(x, scores), shape, kReduceScatter, Collective::kReduceScatter, ranks);
    return to_dtype(part, x.dtype());
  }

  [[nodiscard]] Permutation permute(const Tensor& x, const Tensor& probabilities, std::int64_t rows) const {
    if (config_.options.fuses_permutation) {
      PermutedTokens permuted = te_permute(x, probabilities, rows);
      return {std::move(permuted.rows), std::move(permuted.probabilities), std::move(permuted.map)};
    }
    IndexedRows indexed = permute_by_indices(x, probabilities.size(1), rows);
    return {std::move(indexed.rows), select_probabilities(probabilities, rows), std::move(indexed.indices)};
  }
  [[nodiscard]] Tensor unpermute(const Tensor& rows, const Tensor& map, std::int64_t tokens) const {
    return config_.options.fuses_permutation ? te_unpermute(rows, map, tokens)
                                             : unpermute_by_indices(rows, map, tokens);
  }

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
  MegatronMemory& memory_;
  const MegatronExperts& moe_;
  std::int64_t ep_, tp_, local_;  // expert-parallel and expert-tensor-parallel ranks, experts of a rank
  Tensor router_weight_;
  std::unique_ptr<LocalExperts> experts_;
  std::unique_ptr<MegatronMlp> shared_experts_;
};

}  // namespace

std::unique_ptr<MegatronMlpLayer> build_moe_layer(ModuleBuilder& b, const MegatronConfig& config,
                                                  MegatronMemory& memory) {
  return std::make_unique<MoeLayer>(b, config, memory);
}

}  // namespace memcalc
