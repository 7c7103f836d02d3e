// MiniMax-Text-01 and M1: transformers models/minimax/modeling_minimax.py.
// MIRRORS(transformers, "models/minimax/modeling_minimax.py", "5.17.0")
#include <algorithm>
#include <array>
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/families/minimax/spec.h"
#include "memcalc/families/mixtral/block.h"
#include "memcalc/models/causal_convolution.h"
#include "memcalc/models/linear_states.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"

namespace memcalc {

namespace {

/// What a block forgets, by head: the module's buffers, in the module's type.
struct Decays {
  Tensor slope_rate, query, key, diagonal;  // [H, 1, 1], [H, block, 1], [H, block, 1], [1, H, block, block]
};

/// get_slope_rate
Tensor slope_rates(Tape& tape, std::int64_t heads, DType dtype) {
  const Tensor exponent = no_grad::add(no_grad::arange(tape, heads));
  Tensor rate = no_grad::to(no_grad::power_of_number(no_grad::to(exponent, dtype)), dtype);
  rate = no_grad::multiply(rate);
  return no_grad::view(rate, {heads, 1, 1});
}

/// decay_factors
Decays decay_factors(Tape& tape, Tensor slopes, std::int64_t block) {
  const DType dtype = slopes.dtype();
  const std::int64_t heads = slopes.size(0);
  Decays decays;
  Tensor range = no_grad::add(no_grad::arange(tape, block)), diagonal;
  const auto by_head = [&](const Tensor& rates, const Tensor& numbers) {
    const Tensor wide = no_grad::expand(no_grad::view(numbers, {1, block, 1}), {heads, block, 1});
    return no_grad::multiply(rates, wide);
  };
  {
    const Tensor rates = no_grad::negate(slopes);
    decays.query = no_grad::exponential(by_head(rates, range));
  }
  {
    const Tensor rates = no_grad::negate(slopes);
    const Tensor left = no_grad::subtract(range);
    decays.key = no_grad::exponential(by_head(rates, left));
  }
  {
    const Tensor rows = no_grad::view(range, {block, 1}), columns = no_grad::view(range, {1, block});
    diagonal = no_grad::subtract(rows, columns);
  }
  diagonal = no_grad::view(diagonal, {1, 1, block, block});
  diagonal = no_grad::multiply(no_grad::view(slopes, {1, heads, 1, 1}), diagonal);
  {
    const Tensor past = no_grad::greater_equal(diagonal), negative = no_grad::negate(diagonal);
    const Tensor never = no_grad::scalar(tape, dtype);  // float("-inf")
    diagonal = no_grad::where(past, negative, never);
  }
  decays.diagonal = no_grad::exponential(diagonal);
  decays.slope_rate = std::move(slopes);
  drop(range, diagonal);
  return decays;
}

/// x[…, start:start + length, …], which Python's indexing leaves out where it is all of a dimension.
Tensor part(const Tensor& x, int dim, std::int64_t start, std::int64_t length) {
  return length == x.size(dim) ? x : slice(x, dim, start, length);
}

/// x[:, -length:]
Tensor last_part(const Tensor& x, std::int64_t length) {
  return length == x.size(1) ? slice_whole(x, 1) : slice(x, 1, x.size(1) - length, length);
}

/// MiniMaxLightningAttention
struct LightningAttention {
  std::int64_t head_dim, heads, block_size;
  std::string act_fn;
  RmsNorm norm;
  Linear qkv_proj, out_proj, output_gate;
  Decays decays;

  LightningAttention(ModuleBuilder& b, const MiniMaxSpec& spec)
      : head_dim(spec.head_dim),
        heads(spec.num_attention_heads),
        block_size(spec.block_size),
        act_fn(spec.hidden_act),
        norm(b, "norm", checked_multiply(heads, head_dim)),
        qkv_proj(b, "qkv_proj", spec.hidden_size, checked_multiply(3 * heads, head_dim), false),
        out_proj(b, "out_proj", checked_multiply(heads, head_dim), spec.hidden_size, false),
        output_gate(b, "output_gate", spec.hidden_size, checked_multiply(heads, head_dim), false),
        decays(decay_factors(b.tape, slope_rates(b.tape, heads, b.dtype), block_size)) {
    for (Tensor* buffer : {&decays.slope_rate, &decays.query, &decays.key, &decays.diagonal}) {
      *buffer = b.computed_buffer(*buffer);
      b.state.push_back(*buffer);  // which module.to() converts
      b.tape.memory.set_category(buffer->block(), Category::kWeights);
    }
  }

  /// Beside the output it returns the last block's key-value product, which the layer keeps.
  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const Tensor& mask, KeyValueCache* cache) const {
    if (cache != nullptr && cache->is_filled()) throw refusal(rules::kLinearStatesRead);
    const std::int64_t rows = hidden_states.size(0), tokens = hidden_states.size(1);
    Tensor qkv_states, query_states, key_states, value_states, inter, query, key, value, query_decay, key_decay,
        diagonal_decay, block_decay, intra, output_intra, output_inter, output, next_inter;
    std::vector<Tensor> outputs;
    const Locals locals(qkv_states, query_states, key_states, value_states, query, key, value, query_decay, key_decay,
                        diagonal_decay, block_decay, intra, output_intra, output_inter, output, next_inter);
    {
      const Tensor projected = qkv_proj(hidden_states);
      qkv_states = activation_function(act_fn, projected);
    }
    qkv_states = without_padding(qkv_states, mask);
    qkv_states = reshape(qkv_states, {rows, tokens, heads, 3 * head_dim});
    {
      std::vector<Tensor> parts = split(qkv_states, 3, 3);
      query_states = std::move(parts[0]);
      key_states = std::move(parts[1]);
      value_states = std::move(parts[2]);
    }
    for (Tensor* states : {&query_states, &key_states, &value_states}) *states = transpose(*states, 1, 2);
    inter = no_grad::zeros(hidden_states.tape(), {rows, heads, head_dim, head_dim}, value_states.dtype());
    for (std::int64_t start = 0; start < tokens; start += block_size) {
      const std::int64_t length = std::min(block_size, tokens - start);
      query = part(query_states, 2, start, length);
      key = part(key_states, 2, start, length);
      value = part(value_states, 2, start, length);
      query_decay = part(decays.query, 1, 0, length);
      key_decay = last_part(decays.key, length);
      diagonal_decay = part(part(decays.diagonal, 2, 0, length), 3, 0, length);
      block_decay = exponential(multiply_scalar(negate(decays.slope_rate)));
      intra = matmul(query, transpose(key, 2, 3));
      output_intra = matmul(intra * diagonal_decay, value);
      output_inter = matmul(query * query_decay, inter);
      output = output_inter + output_intra;
      outputs.push_back(output);
      {
        Tensor decayed = key * key_decay;
        next_inter = matmul(transpose(std::move(decayed), 2, 3), value);
      }
      {
        Tensor decayed = inter * block_decay;
        inter = std::move(decayed) + next_inter;
      }
    }
    Tensor attn_output = concatenate(outputs, 2);
    for (Tensor& each : outputs) each.reset();
    attn_output = transpose(attn_output, 1, 2);
    attn_output = reshape(attn_output, {rows, tokens, heads * head_dim});
    attn_output = norm(attn_output);
    {
      Tensor gate = sigmoid(output_gate(hidden_states));
      attn_output = std::move(gate) * attn_output;
    }
    attn_output = out_proj(attn_output);
    if (cache != nullptr) cache->add_layer({}, no_grad::view(inter, {rows, heads, head_dim * head_dim}));  // of a state
    return {std::move(attn_output), std::move(inter)};
  }
};

struct MiniMaxAttention : RotaryAttention {
  MiniMaxAttention(ModuleBuilder& b, const MiniMaxSpec& spec, const RunSpec& run)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), /*sliding=*/false, /*qkv_bias=*/false,
                        /*output_bias=*/false) {}
};

/// The MiniMaxAttention that every layer makes first, and that a lightning one replaces: q_proj, k_proj, v_proj,
/// o_proj.
std::array<Tensor, 4> replaced_attention(ModuleBuilder& b, const MiniMaxSpec& spec) {
  const std::int64_t width = checked_multiply(spec.num_attention_heads, spec.head_dim);
  const std::int64_t kept = checked_multiply(spec.num_key_value_heads, spec.head_dim);
  return {b.until_tied({width, spec.hidden_size}), b.until_tied({kept, spec.hidden_size}),
          b.until_tied({kept, spec.hidden_size}), b.until_tied({spec.hidden_size, width})};
}

using MiniMaxMixer = std::variant<LightningAttention, MiniMaxAttention>;

/// MiniMaxDecoderLayer: the residual is what the norm returned, and both halves are scaled.
struct MiniMaxLayer {
  MiniMaxMixer self_attn;
  RmsNorm input_layernorm, post_attention_layernorm;
  MixtralSparseMoeBlock<MiniMaxSpec> mlp;

  MiniMaxLayer(ModuleBuilder& b, const MiniMaxSpec& spec, const RunSpec& run, bool /*sliding*/, LayerIndex index)
      : self_attn(b.scope("self_attn",
                          [&] {
                            if (!spec.linear_layers[static_cast<std::size_t>(index.value)]) {
                              return MiniMaxMixer{MiniMaxAttention(b, spec, run)};
                            }
                            std::array<Tensor, 4> replaced = replaced_attention(b, spec);
                            MiniMaxMixer lightning{LightningAttention(b, spec)};
                            for (Tensor& each : replaced) each.reset();
                            return lightning;
                          })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size),
        mlp(b.scope("mlp", [&] { return MixtralSparseMoeBlock<MiniMaxSpec>(b, spec); })) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    Tensor hidden_states = input_layernorm(input);
    Tensor residual = hidden_states;
    AttentionResult attention = mixed(hidden_states, positions, mask, cache);
    hidden_states = std::move(attention.output);
    hidden_states = joined(residual, hidden_states);
    hidden_states = post_attention_layernorm(hidden_states);
    residual = hidden_states;
    hidden_states = mlp.forward(hidden_states);
    hidden_states = joined(residual, hidden_states);
    drop(residual, attention.weights);
    return hidden_states;
  }

 private:
  /// residual * alpha + hidden_states * beta
  [[nodiscard]] static Tensor joined(const Tensor& residual, const Tensor& half) {
    Tensor first = multiply_scalar(residual);
    Tensor second = multiply_scalar(half);
    return std::move(first) + std::move(second);
  }

  [[nodiscard]] AttentionResult mixed(const Tensor& hidden_states, const RotaryPositions& positions, const Tensor& mask,
                                      KeyValueCache* cache) const {
    if (const auto* lightning = std::get_if<LightningAttention>(&self_attn)) {
      return lightning->forward(hidden_states, mask, cache);
    }
    return std::get<MiniMaxAttention>(self_attn).forward(hidden_states, positions, mask, cache);
  }
};

}  // namespace

std::unique_ptr<Model> build_minimax(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<MiniMaxSpec>();
  if (run.parallel.framework() == Framework::kDeepSpeed) throw refusal(rules::kDeepSpeedBuffers, {"decay factors"});
  auto plan = decoder_plan<MiniMaxLayer>(spec, run);
  plan.masks = MaskPlan::hybrid(spec.linear_layers);
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
