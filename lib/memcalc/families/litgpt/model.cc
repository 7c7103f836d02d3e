// LitGPT, commit 0cc02afa (October 2023): lit_gpt/model.py, lora.py, rmsnorm.py, utils.py (chunked_cross_entropy),
// finetune/lora.py and full.py, in Lightning Fabric.
// MIRRORS(lit_gpt, "model.py", "0cc02afa")
// MIRRORS(lit_gpt, "rmsnorm.py", "0cc02afa")
// MIRRORS(lit_gpt, "utils.py", "0cc02afa")
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/families/gpt_neox/spec.h"
#include "memcalc/families/litgpt/lora.h"
#include "memcalc/families/litgpt/spec.h"
#include "memcalc/families/llama/spec.h"
#include "memcalc/families/phi/spec.h"
#include "memcalc/models/model.h"
#include "memcalc/models/own_adapters.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/ops/attention.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

using litgpt::Config, litgpt::LoraLinear, litgpt::LoraQkvLinear, litgpt::Targets;

Config config_of(const RotaryDecoderSpec& spec, std::int64_t rope_elements) {
  return {.vocab_size = spec.vocab_size,
          .layers = spec.num_hidden_layers,
          .heads = spec.num_attention_heads,
          .query_groups = spec.num_key_value_heads,
          .width = spec.hidden_size,
          .head_size = spec.head_dim,
          .intermediate_size = spec.intermediate_size,
          .rope_elements = rope_elements,
          .bias = spec.attention_bias,
          .lm_head_bias = false,
          .rms_norm = true,
          .gated_mlp = true,
          .parallel_residual = false,
          .shared_attention_norm = false};
}

Config config_of(const GptNeoxSpec& spec) {
  return {.vocab_size = spec.vocab_size,
          .layers = spec.num_hidden_layers,
          .heads = spec.num_attention_heads,
          .query_groups = spec.num_attention_heads,
          .width = spec.hidden_size,
          .head_size = spec.hidden_size / spec.num_attention_heads,
          .intermediate_size = spec.intermediate_size,
          .rope_elements = spec.rotary_dim,
          .bias = true,
          .lm_head_bias = false,
          .rms_norm = false,
          .gated_mlp = false,
          .parallel_residual = spec.use_parallel_residual,
          .shared_attention_norm = false};
}

Config config_of(const PhiSpec& spec) {
  Config config = config_of(spec, spec.rotary_dim);
  config.lm_head_bias = config.parallel_residual = config.shared_attention_norm = true;
  config.rms_norm = config.gated_mlp = false;
  return config;
}

/// The cos and sin that the model keeps for its longest sequence, in float32: roped numbers are, too, for a moment.
struct RopeCache {
  Tensor cos, sin;
};

Tensor apply_rope(const Tensor& x, const RopeCache& rope) {
  const std::int64_t half = x.size(-1) / 2;
  const Tensor x1 = slice(x, -1, 0, half);
  const Tensor x2 = slice(x, -1, half, x.size(-1) - half);
  Tensor rotated = cat(negate(x2), x1, -1);
  Tensor roped = (x * rope.cos) + (rotated * rope.sin);
  Tensor result = to_dtype(roped, x.dtype());
  drop(rotated, roped);
  return result;
}

struct CausalSelfAttention {
  LoraQkvLinear attn;
  LoraLinear proj;
  Config config;

  CausalSelfAttention(ModuleBuilder& b, const Config& c, const Targets& targets)
      : attn(b, c, targets), proj(b, "proj", c.width, c.width, c.bias, targets, "projection"), config(c) {}

  /// The rotated elements of each head and, behind them, the others.
  [[nodiscard]] Tensor rope(const Tensor& x, const RopeCache& rope) const {
    const std::int64_t n = config.rope_elements;
    const Tensor roped = apply_rope(slice(x, -1, 0, n), rope);
    if (n == config.head_size) return cat_with_empty(roped, roped.dtype());
    return cat(roped, slice(x, -1, n, config.head_size - n), -1);
  }

  [[nodiscard]] Tensor operator()(const Tensor& x, const RopeCache& cache) const {
    const std::int64_t batch = x.size(0), tokens = x.size(1), size = config.head_size;
    const std::int64_t per_group = config.heads / config.query_groups;
    Tensor qkv = attn(x);
    qkv = view(qkv, {batch, tokens, config.query_groups, per_group + 2, size});
    qkv = permute(qkv, {0, 2, 3, 1, 4});
    std::vector<Tensor> parts = split(qkv, 2, {per_group, 1, 1});
    Tensor q = std::move(parts[0]), k = std::move(parts[1]), v = std::move(parts[2]);
    if (per_group != 1) {
      k = expand(k, {batch, config.query_groups, per_group, tokens, size});
      v = expand(v, {batch, config.query_groups, per_group, tokens, size});
    }
    q = reshape(q, {batch, -1, tokens, size});
    k = reshape(k, {batch, -1, tokens, size});
    v = reshape(v, {batch, -1, tokens, size});
    q = rope(q, cache);
    k = rope(k, cache);
    Tensor y = transpose(scaled_dot_product_attention(q, k, v, {}, {.causal = true}), 1, 2);
    y = reshape(y, {batch, tokens, config.width});
    Tensor result = proj(y);
    drop(qkv, q, k, v, y);
    return result;
  }
};

/// GptNeoxMLP and LLaMAMLP.
struct Mlp {
  std::optional<LoraLinear> gate;  // fc_1, where there are two
  LoraLinear up, proj;

  Mlp(ModuleBuilder& b, const Config& c, const Targets& targets)
      : gate(c.gated_mlp ? std::optional<LoraLinear>(std::in_place, b, "fc_1", c.width, c.intermediate_size, c.bias,
                                                     targets, "mlp")
                         : std::nullopt),
        up(b, c.gated_mlp ? "fc_2" : "fc", c.width, c.intermediate_size, c.bias, targets, "mlp"),
        proj(b, "proj", c.intermediate_size, c.width, c.bias, targets, "mlp") {}

  [[nodiscard]] Tensor operator()(const Tensor& input) const {
    if (!gate) {
      Tensor x = up(input);
      x = gelu(x);
      return proj(x);
    }
    const Tensor x_fc_1 = (*gate)(input);
    const Tensor x_fc_2 = up(input);
    const Tensor x = silu(x_fc_1) * x_fc_2;
    return proj(x);
  }
};

/// nn.LayerNorm, or RMSNorm in float32.
struct Norm {
  std::optional<LayerNorm> layer_norm;
  Tensor weight;

  Norm(ModuleBuilder& b, std::string_view name, const Config& c) {
    if (!c.rms_norm) layer_norm.emplace(b, name, c.width);
    if (c.rms_norm) weight = b.parameter(std::string(name) + ".weight", {c.width}, false);
  }

  [[nodiscard]] Tensor operator()(const Tensor& input) const {
    if (layer_norm) return (*layer_norm)(input);
    const Tensor x = to_dtype(input, DType::kFloat32);
    const Tensor norm_x = mean_last(x * x);
    const Tensor x_normed = x * reciprocal_sqrt(add_scalar(norm_x));
    return to_dtype(weight * x_normed, input.dtype());
  }
};

struct Block {
  Norm norm_1;
  CausalSelfAttention attn;
  std::optional<Norm> norm_2;
  Mlp mlp;
  bool parallel_residual;

  Block(ModuleBuilder& b, const Config& c, const Targets& targets)
      : norm_1(b, "norm_1", c),
        attn(b.scope("attn", [&] { return CausalSelfAttention(b, c, targets); })),
        norm_2(c.shared_attention_norm ? std::nullopt : std::optional<Norm>(std::in_place, b, "norm_2", c)),
        mlp(b.scope("mlp", [&] { return Mlp(b, c, targets); })),
        parallel_residual(c.parallel_residual) {}

  [[nodiscard]] Tensor operator()(const Tensor& input, const RopeCache& rope) const {
    Tensor n_1 = norm_1(input);
    Tensor h = attn(n_1, rope);
    Tensor x;
    if (parallel_residual) {
      Tensor n_2 = norm_2 ? (*norm_2)(input) : n_1;
      x = mlp(n_2) + h + input;
      n_2.reset();
    } else {
      x = h + input;
      x = mlp((*norm_2)(x)) + x;
    }
    drop(n_1, h);
    return x;
  }
};

class LitGpt : public Model, public OwnAdapters {
 public:
  LitGpt(const Config& c, const RunSpec& run, ModuleBuilder& b)
      : finetunes_adapters_(run.fine_tuning.lora.has_value()),
        targets_(run.fine_tuning.lora),
        lm_head_(b, "lm_head", c.width, c.vocab_size, c.lm_head_bias, targets_, "head") {
    b.scope("transformer", [&] {
      wte_ = Embedding(b, "wte", c.vocab_size, c.width);
      for (std::int64_t i = 0; i < c.layers; ++i) {
        h_.push_back(b.scope("h." + std::to_string(i), [&] { return Block(b, c, targets_); }));
      }
      ln_f_.emplace(b, "ln_f", c);
      return 0;
    });
    rope_ = {b.buffer({run.sequence_length, c.rope_elements}, DType::kFloat32),
             b.buffer({run.sequence_length, c.rope_elements}, DType::kFloat32)};
    not_modelled = {"LitGPT's validation before the first step and its loading of the checkpoint"};
  }

  [[nodiscard]] bool is_adapter(std::string_view parameter) const override {
    return parameter.find("lora_") != std::string_view::npos;
  }

  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    Tensor x = wte_(batch.input_ids);
    for (const Block& block : h_) x = block(x, rope_);
    x = (*ln_f_)(x);
    ModelOutput output;
    output.loss = finetunes_adapters_ ? chunked_loss(x, batch.labels) : whole_loss(x, batch.labels);
    return output;
  }

 private:
  /// finetune/full.py: logits of the whole sequence, which Fabric hands over in float32.
  [[nodiscard]] Tensor whole_loss(Tensor& x, const Tensor& labels) const {
    const std::int64_t tokens = x.size(1);
    Tensor logits;
    {
      const Tensor output = lm_head_(x);
      x.reset();
      logits = to_dtype(output, DType::kFloat32);
    }
    Tensor rows = reshape(slice(logits, 1, 0, tokens - 1), {-1, logits.size(-1)});
    Tensor loss = cross_entropy(rows, reshape(slice(labels, 1, 1, tokens - 1), {-1}));
    keep_until_backward_is_done(loss, {logits});
    return loss;
  }

  /// finetune/lora.py: the head and the loss in pieces of 128 tokens. The script's `logits` outlives backward.
  [[nodiscard]] Tensor chunked_loss(Tensor& x, const Tensor& labels) const {
    constexpr std::int64_t kChunk = 128;
    const std::int64_t tokens = x.size(1);
    std::vector<Tensor> logits;
    {
      std::vector<Tensor> pieces = split_tokens(x, kChunk);
      x.reset();
      std::vector<Tensor> outputs;
      for (Tensor& piece : pieces) outputs.push_back(lm_head_(piece));
      pieces.clear();
      for (const Tensor& output : outputs) logits.push_back(to_dtype(output, DType::kFloat32));
    }
    if (logits.back().size(1) > 1) logits.back() = slice(logits.back(), 1, 0, logits.back().size(1) - 1);
    Tensor loss;
    std::int64_t start = 1;
    for (const Tensor& each : logits) {
      const std::int64_t length = std::min(each.size(1), tokens - start);
      if (length == 0) break;
      const Tensor targets = reshape(slice(labels, 1, start, length), {-1});
      Tensor part = cross_entropy(reshape(each, {-1, each.size(-1)}), targets);
      loss = loss.defined() ? loss + part : part;
      start += length;
    }
    keep_until_backward_is_done(loss, logits);
    return loss;
  }

  /// x.split(length, dim=1), whose gradient is put together once all parts have theirs.
  [[nodiscard]] static std::vector<Tensor> split_tokens(const Tensor& x, std::int64_t length) {
    std::vector<Tensor> pieces;
    Tensor rest = x;
    while (rest.size(1) > length) {
      const std::int64_t left = rest.size(1) - length;
      const std::int64_t second = std::min(length, left);
      std::vector<Tensor> parts = split(rest, 1, {length, second, left - second});
      pieces.push_back(std::move(parts[0]));
      rest = std::move(parts[1]);
      if (left == second) break;
      pieces.push_back(std::move(rest));
      rest = std::move(parts[2]);
    }
    pieces.push_back(std::move(rest));
    return pieces;
  }

  static void keep_until_backward_is_done(const Tensor& loss, const std::vector<Tensor>& logits) {
    if (!loss.requires_grad()) return;
    loss.tape().autograd.at_end_of_backward([logits] {});
  }

  bool finetunes_adapters_;
  Targets targets_;
  LoraLinear lm_head_;
  Embedding wte_;
  std::vector<Block> h_;
  std::optional<Norm> ln_f_;
  RopeCache rope_;
};

}  // namespace

std::unique_ptr<Model> build_litgpt(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  std::optional<Config> config;
  if (const auto* llama = architecture.get_if<LlamaSpec>()) config = config_of(*llama, llama->head_dim);
  if (const auto* neox = architecture.get_if<GptNeoxSpec>()) config = config_of(*neox);
  if (const auto* phi = architecture.get_if<PhiSpec>()) config = config_of(*phi);
  if (!config) throw refusal(rules::kLitGptModels);
  return std::make_unique<LitGpt>(*config, run, builder);
}

}  // namespace memcalc
