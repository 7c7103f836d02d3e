// megatron/core/ssm/mamba_mixer.py (core_r0.14.0): projections by TransformerEngine, convolution, scan and norm by
// mamba-ssm. Under context parallelism a rank has all tokens for its part of the heads between two exchanges.
// MIRRORS(megatron, "core/ssm/mamba_context_parallel.py", "0.14.0")
// MIRRORS(megatron, "core/ssm/mamba_mixer.py", "0.14.0")
#include "memcalc/models/megatron_gpt.h"
#include "memcalc/symbolic/ops/mamba_ssm.h"
#include "memcalc/symbolic/ops/tensor_parallel.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

constexpr Operator kExchangeHeads{"c10d::alltoall_base_"};

class MambaMixer : public MegatronAttentionLayer {
 public:
  MambaMixer(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory)
      : context_(config.parallel.context), scan_(part_of_rank(*config.mamba, config.parallel)) {
    const Mamba2MixerSpec& mamba = *config.mamba;
    const std::int64_t ranks = config.parallel.tensor;
    for (const char* name : {"dt_bias", "A_log", "D"}) {
      const Tensor of_heads = b.parameter(name, {mamba.num_heads / ranks}, false);
    }
    in_proj_ = std::make_unique<MegatronLinear>(b, "in_proj", memory, ParallelMode::kColumn, config.hidden_size,
                                                mamba.intermediate_size() + mamba.conv_dim() + mamba.num_heads, false,
                                                true, config.rms_norm);
    b.scope("conv1d", [&] {
      const Tensor weight = b.parameter("weight", {mamba.conv_dim() / ranks, 1, mamba.conv_kernel});
      const Tensor bias = b.parameter("bias", {mamba.conv_dim() / ranks}, false);
      return 0;
    });
    b.scope("norm", [&] {
      const Tensor weight = b.parameter("weight", {mamba.intermediate_size() / ranks}, false);
      return 0;
    });
    out_proj_ = std::make_unique<MegatronLinear>(b, "out_proj", memory, ParallelMode::kRow, mamba.intermediate_size(),
                                                 config.hidden_size, false, false, config.rms_norm);
  }

  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const MegatronAttended& /*attended*/) const override {
    Tensor x = exchanged((*in_proj_)(hidden_states), true);
    x = contiguous(transpose(x, 0, 1));
    Tensor y = mamba_split_conv_scan(scan_, x);
    x.reset();
    y = exchanged(contiguous(transpose(y, 0, 1)), false);
    y = mamba_group_norm(y, scan_.groups * context_);
    return (*out_proj_)(y);
  }

 private:
  [[nodiscard]] static MambaScan part_of_rank(const Mamba2MixerSpec& mamba, const Parallel& parallel) {
    const std::int64_t ranks = parallel.tensor * parallel.context;
    return {.heads = mamba.num_heads / ranks,
            .head_dim = mamba.head_dim,
            .groups = mamba.n_groups / ranks,
            .state = mamba.state_size,
            .chunk = mamba.chunk_size};
  }

  /// all_to_all_cp2hp and back: x [s, b, width] to all tokens of a part of the heads, or the other way.
  [[nodiscard]] Tensor exchanged(const Tensor& x, bool to_heads) const {
    if (context_ == 1) return x;
    const Shape shape = to_heads ? Shape{x.size(0) * context_, x.size(1), x.size(2) / context_}
                                 : Shape{x.size(0) / context_, x.size(1), x.size(2) * context_};
    return exchange(x, shape, kExchangeHeads, Collective::kAllToAll, context_);
  }

  std::int64_t context_;
  MambaScan scan_;
  std::unique_ptr<MegatronLinear> in_proj_, out_proj_;
};

}  // namespace

std::unique_ptr<MegatronAttentionLayer> build_mamba_mixer(ModuleBuilder& b, const MegatronConfig& config,
                                                          MegatronMemory& memory) {
  return std::make_unique<MambaMixer>(b, config, memory);
}

}  // namespace memcalc
