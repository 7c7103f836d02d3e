// LitGPT's LoRA (lit_gpt/lora.py of commit 0cc02afa, October 2023): a layer and its update are one module, and the
// query, key and value of a layer share one.
// MIRRORS(lit_gpt, "lora.py", "0cc02afa")
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/models/module.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/fine_tuning.h"
#include "memcalc/spec/names.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/conv1d.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc::litgpt {

/// lit_gpt/config.py, as far as the modules ask.
struct Config {
  std::int64_t vocab_size, layers, heads, query_groups, width, head_size, intermediate_size, rope_elements;
  bool bias, lm_head_bias, rms_norm, gated_mlp, parallel_residual, shared_attention_norm;
};

/// to_query, to_key, … of lora.py's Config, as --lora-targets names them.
inline constexpr std::array<std::string_view, 6> kTargets = {"query", "key", "value", "projection", "mlp", "head"};

class Targets {
 public:
  explicit Targets(const std::optional<Lora>& lora) {
    if (!lora) return;
    rank = lora->rank;
    dropout = lora->dropout;
    for (const std::string& name : lora->targets) {
      const auto found = std::find(kTargets.begin(), kTargets.end(), name);
      if (found == kTargets.end()) {
        throw refusal(rules::kLoraTarget, {one_line(name), "query, key, value, projection, mlp, head"});
      }
      taken_[static_cast<std::size_t>(found - kTargets.begin())] = true;
    }
  }
  [[nodiscard]] bool has(std::string_view name) const {
    return taken_[static_cast<std::size_t>(std::find(kTargets.begin(), kTargets.end(), name) - kTargets.begin())];
  }

  std::int64_t rank = 0;
  double dropout = 0;

 private:
  std::array<bool, kTargets.size()> taken_{};
};

/// LoRALinear: the low-rank update of a layer of its own.
struct LoraLinear {
  Linear base;
  Tensor lora_a, lora_b;
  double lora_dropout;

  LoraLinear(ModuleBuilder& b, const std::string& name, std::int64_t in, std::int64_t out, bool bias,
             const Targets& targets, std::string_view target)
      : base(b, name + ".linear", in, out, bias), lora_dropout(targets.dropout) {
    if (!targets.has(target)) return;
    lora_a = b.parameter(name + ".lora_A", {targets.rank, in});
    lora_b = b.parameter(name + ".lora_B", {out, targets.rank});
  }

  [[nodiscard]] Tensor operator()(const Tensor& x) const {
    Tensor pretrained = base(x);
    if (!lora_a.defined()) return pretrained;
    Tensor lora = multiply_scalar(linear(linear(dropout(x, lora_dropout), lora_a, {}), lora_b, {}));
    Tensor result = pretrained + lora;
    drop(pretrained, lora);
    return result;
  }
};

/// LoRAQKVLinear: one layer for query, key and value; the updates of those that have one come from a grouped
/// convolution, and zeros are put between them.
struct LoraQkvLinear {
  Linear base;
  Tensor lora_a, lora_b;
  double lora_dropout;
  std::int64_t out_features;
  std::vector<std::int64_t> widths;  // of the parts that have an update
  bool grouped_heads;
  bool whole;  // all three have one: nothing to pad

  LoraQkvLinear(ModuleBuilder& b, const Config& c, const Targets& targets)
      : base(b, "attn.linear", c.width, (c.heads + 2 * c.query_groups) * c.head_size, c.bias),
        lora_dropout(targets.dropout),
        out_features((c.heads + 2 * c.query_groups) * c.head_size),
        grouped_heads(c.heads != c.query_groups) {
    const std::int64_t key_width = c.query_groups * c.head_size;
    if (targets.has("query")) widths.push_back(c.width);
    if (targets.has("key")) widths.push_back(key_width);
    if (targets.has("value")) widths.push_back(key_width);
    whole = widths.size() == 3;
    if (widths.empty()) return;
    std::int64_t width = 0;
    for (const std::int64_t each : widths) width += each;
    lora_a = b.parameter("attn.lora_A", {targets.rank * static_cast<std::int64_t>(widths.size()), c.width});
    lora_b = b.parameter("attn.lora_B", {width, targets.rank});
  }

  [[nodiscard]] Tensor convolve(const Tensor& input, const Tensor& weight) const {
    if (!grouped_heads) return conv1d(input, weight, {}, 1, 0);
    std::vector<Tensor> results;
    const std::int64_t channels = input.size(1) / static_cast<std::int64_t>(widths.size());
    std::int64_t row = 0, channel = 0;
    for (const std::int64_t width : widths) {
      results.push_back(conv1d(slice(input, 1, channel, channels), slice(weight, 0, row, width), {}, 1, 0));
      row += width;
      channel += channels;
    }
    return concatenate(results, 1);
  }

  [[nodiscard]] Tensor zero_pad(const Tensor& update) const {
    if (whole) return update;
    const Tensor x = transpose(update, 0, 1);
    const Tensor columns = no_grad::from_list(update.tape(), {x.size(2)});
    const Tensor result = index_copy_to_zeros(reshape(x, {-1, x.size(2)}), columns, out_features);
    return transpose(view(result, {x.size(0), x.size(1), out_features}), 0, 1);
  }

  [[nodiscard]] Tensor operator()(const Tensor& x) const {
    Tensor pretrained = base(x);
    if (!lora_a.defined()) return pretrained;
    Tensor after_a = linear(dropout(x, lora_dropout), lora_a, {});
    Tensor after_b = transpose(convolve(transpose(after_a, 1, 2), unsqueeze(lora_b, 2)), 1, 2);
    Tensor lora = multiply_scalar(zero_pad(after_b));
    Tensor result = pretrained + lora;
    drop(pretrained, after_a, after_b, lora);
    return result;
  }
};

}  // namespace memcalc::litgpt
