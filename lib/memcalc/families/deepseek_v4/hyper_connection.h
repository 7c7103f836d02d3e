// DeepSeek-V4's residual streams: how a layer's half reads them and writes to them.
// MIRRORS(transformers, "models/deepseek_v4/modeling_deepseek_v4.py", "5.17.0")
#pragma once

#include <cstdint>

#include "memcalc/families/deepseek_v4/spec.h"
#include "memcalc/models/module.h"

namespace memcalc::deepseek_v4 {

/// DeepseekV4UnweightedRMSNorm
[[nodiscard]] Tensor unweighted_rms_norm(const Tensor& x);

/// DeepseekV4HyperConnection
struct HyperConnection {
  /// What it returns.
  struct Mix {
    Tensor post, comb, collapsed;

    /// post * output + comb^T @ streams: the streams behind a half.
    [[nodiscard]] Tensor joined(const Tensor& output, const Tensor& streams) const;
    void clear() { drop(post, comb, collapsed); }
  };

  std::int64_t streams, iterations;
  Tensor fn, base, scale;

  HyperConnection(ModuleBuilder& b, const DeepseekV4Spec& spec);
  /// [B, S, streams, hidden]
  [[nodiscard]] Mix forward(const Tensor& hidden_streams) const;
};

/// DeepseekV4HyperHead: the streams become one.
struct HyperHead {
  Tensor fn, base, scale;

  HyperHead() = default;
  HyperHead(ModuleBuilder& b, const DeepseekV4Spec& spec);
  [[nodiscard]] Tensor operator()(const Tensor& x) const;
};

}  // namespace memcalc::deepseek_v4
