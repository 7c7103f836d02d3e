// DeepSeek-V4: transformers models/deepseek_v4/modeling_deepseek_v4.py. Its layers that predict further tokens are not
// loaded.
// MIRRORS(transformers, "models/deepseek_v4/modeling_deepseek_v4.py", "5.17.0")
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/families/deepseek_v4/compressor.h"
#include "memcalc/families/deepseek_v4/hyper_connection.h"
#include "memcalc/families/deepseek_v4/spec.h"
#include "memcalc/models/decoder_model.h"
#include "memcalc/models/experts.h"
#include "memcalc/models/linear_states.h"
#include "memcalc/models/routers.h"
#include "memcalc/models/sinks_attention.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/variance.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

using deepseek_v4::Compressor;
using deepseek_v4::HyperConnection;
using deepseek_v4::HyperHead;
using deepseek_v4::LayerStates;
using deepseek_v4::Rotaries;
using deepseek_v4::rotate_last;
using deepseek_v4::unweighted_rms_norm;

/// DeepseekV4GroupedLinear: heads by group, each with a matrix of its own. peft cannot adapt it, a linear layer whose
/// output is narrower than its out_features.
struct GroupedLinear {
  std::int64_t groups;
  Tensor weight;

  GroupedLinear(ModuleBuilder& b, std::int64_t in_of_group, std::int64_t out, std::int64_t groups)
      : groups(groups), weight(b.parameter("weight", {out, in_of_group})) {}

  /// [B, S, groups, in] to [B, S, groups, out / groups]
  [[nodiscard]] Tensor operator()(const Tensor& input) const {
    const std::int64_t width = input.size(-1);
    Tensor w = transpose(view(weight, {groups, -1, width}), 1, 2);
    Tensor x = transpose(reshape(input, {-1, groups, width}), 0, 1);
    Tensor y = transpose(batched_product(x, w), 0, 1);
    Tensor result = reshape(y, {input.size(0), input.size(1), groups, -1});
    drop(x, w, y);
    return result;
  }
};

/// The cosines and sines of both kinds of layers, and what else a layer is called with.
struct LayerInputs {
  std::array<Tensor, 2> cos, sin;  // "main", "compress"
  Tensor position_ids, mask, input_ids;
};

/// DeepseekV4Attention
struct DeepseekV4Attention {
  std::int64_t head_dim;
  CompressedKeys keys;
  double attention_dropout;
  Linear q_a_proj;
  RmsNorm q_a_norm;
  Linear q_b_proj, kv_proj;
  RmsNorm kv_norm;
  GroupedLinear o_a_proj;
  Linear o_b_proj;
  Tensor sinks;
  std::optional<Compressor> compressor;

  DeepseekV4Attention(ModuleBuilder& b, const DeepseekV4Spec& spec, std::vector<Rotaries>& rotaries, std::size_t layer)
      : head_dim(spec.head_dim),
        keys(spec.layers[layer]),
        attention_dropout(spec.attention_dropout),
        q_a_proj(b, "q_a_proj", spec.hidden_size, spec.q_lora_rank, false),
        q_a_norm(b, "q_a_norm", spec.q_lora_rank),
        q_b_proj(b, "q_b_proj", spec.q_lora_rank, checked_multiply(spec.num_attention_heads, head_dim), false),
        kv_proj(b, "kv_proj", spec.hidden_size, head_dim, false),
        kv_norm(b, "kv_norm", head_dim),
        o_a_proj(b.scope("o_a_proj",
                         [&] {
                           return GroupedLinear(b, spec.num_attention_heads * head_dim / spec.o_groups,
                                                checked_multiply(spec.o_groups, spec.o_lora_rank), spec.o_groups);
                         })),
        o_b_proj(b, "o_b_proj", checked_multiply(spec.o_groups, spec.o_lora_rank), spec.hidden_size, false),
        sinks(b.parameter_before("sinks", {spec.num_attention_heads}, "q_a_proj.weight")) {
    if (keys == CompressedKeys::kNone) return;
    compressor = b.scope("compressor", [&] { return Compressor(b, spec, keys, rotaries); });
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const LayerInputs& inputs,
                                        KeyValueCache* cache) const {
    const std::int64_t batch = hidden_states.size(0), tokens = hidden_states.size(1);
    const std::size_t type = compressor ? 1 : 0;
    Tensor attention_mask = inputs.mask;
    const Tensor &cos = inputs.cos[type], &sin = inputs.sin[type];
    Tensor q_residual, q, kv, block_bias, compressed_kv, grouped;
    {
      const Tensor projected = q_a_proj(hidden_states);
      q_residual = q_a_norm(projected);
    }
    q = transpose(view(q_b_proj(q_residual), {batch, tokens, -1, head_dim}), 1, 2);
    q = unweighted_rms_norm(q);
    q = rotate_last(q, cos, sin);
    {
      const Tensor projected = kv_proj(hidden_states);
      kv = transpose(view(kv_norm(projected), {batch, tokens, -1, head_dim}), 1, 2);
    }
    kv = rotate_last(kv, cos, sin);
    LayerStates states;
    if (cache != nullptr && compressor) {
      kv = states.update(kv);
    } else if (cache != nullptr) {
      Tensor value = kv;
      cache->update(kv, value, /*sliding=*/true);
    }
    if (compressor) {
      std::tie(compressed_kv, block_bias) =
          compressor->forward(hidden_states, q_residual, inputs.position_ids, cache != nullptr ? &states : nullptr);
      kv = cat(kv, compressed_kv, 2);
      if (cache != nullptr) states.keep(*cache);
    }
    if (attention_mask.defined() && block_bias.defined()) {
      const Tensor bias = to_dtype(block_bias, attention_mask.dtype());
      attention_mask = cat(attention_mask, bias, -1);
    }
    AttentionResult result = attention_with_sinks(q, kv, kv, attention_mask, sinks, attention_dropout);
    {
      const Tensor heads = transpose(result.output, 1, 2);
      result.output = transpose(rotate_last(heads, cos, no_grad::negate(sin)), 1, 2);
    }
    grouped = reshape(result.output, {batch, tokens, o_a_proj.groups, -1});
    {
      Tensor product = o_a_proj(grouped);
      Tensor flat = reshape(product, {batch, tokens, -1});
      product.reset();
      grouped = std::move(flat);
    }
    Tensor output = o_b_proj(grouped);
    drop(attention_mask, q_residual, q, kv, block_bias, compressed_kv, result.output, grouped);
    return {std::move(output), std::move(result.weights)};
  }
};

/// DeepseekV4TopKRouter, DeepseekV4HashRouter
struct DeepseekV4Router {
  std::int64_t top_k;
  bool hashed, root_of_softplus;
  RouterWeight weight;
  Tensor buffer;  // the experts of each token of the vocabulary, or a correction

  DeepseekV4Router(ModuleBuilder& b, const DeepseekV4Spec& spec, bool hashed)
      : top_k(spec.experts.per_token),
        hashed(hashed),
        root_of_softplus(spec.root_of_softplus),
        weight(b, spec),
        buffer(hashed ? b.buffer({spec.vocab_size, top_k}, DType::kInt64) : b.buffer({spec.experts.count}, b.dtype)) {}

  [[nodiscard]] Routing forward(const Tensor& hidden_states, const Tensor& input_ids) const {
    ActiveWrappers wrappers(weight.wrapped.get());
    Tensor flat = reshape(hidden_states, {-1, hidden_states.size(-1)});
    Tensor logits = linear(flat, wrappers.read(weight.parameter), {});
    Tensor scores;
    if (root_of_softplus) {
      const Tensor positive = softplus(logits);
      scores = square_root(positive);
    } else {
      scores = sigmoid(logits);
    }
    Tensor indices;
    if (hashed) {
      const Tensor ids = no_grad::view(input_ids, {input_ids.elements()});
      indices = no_grad::index(buffer, {{0, ids}});
    } else {
      Tensor corrected = scores + buffer;
      Selection chosen = topk(corrected, top_k, false);
      corrected.reset();
      indices = std::move(chosen.indices);
    }
    Tensor weights = gather(scores, indices);
    {
      Tensor total = sum_over(weights, -1, true);
      weights = divide_both(weights, add_scalar(std::move(total)));
    }
    Tensor scaled = multiply_scalar(weights);  // * routed_scaling_factor
    drop(flat, scores, weights);
    return {std::move(logits), std::move(scaled), std::move(indices)};
  }
};

/// DeepseekV4Experts._apply_gate
Tensor apply_limited_gate(const Tensor& gate_up, std::string_view act_fn) {
  std::vector<Tensor> parts = split(gate_up, -1, 2);
  Tensor gate = std::move(parts[0]), up = std::move(parts[1]);
  gate = clamp_above(gate);
  up = clamp(up);
  Tensor gated = activation_function(act_fn, gate) * up;
  drop(gate, up);
  return gated;
}

/// DeepseekV4MLP
struct LimitedMlp {
  std::string act_fn;
  Linear gate_proj, up_proj, down_proj;

  LimitedMlp(ModuleBuilder& b, const DeepseekV4Spec& spec)
      : act_fn(spec.hidden_act),
        gate_proj(b, "gate_proj", spec.hidden_size, spec.intermediate_size, spec.mlp_bias),
        up_proj(b, "up_proj", spec.hidden_size, spec.intermediate_size, spec.mlp_bias),
        down_proj(b, "down_proj", spec.intermediate_size, spec.hidden_size, spec.mlp_bias) {}

  [[nodiscard]] Tensor forward(const Tensor& x) const {
    Tensor gate = clamp_above(gate_proj(x));
    Tensor up = clamp(up_proj(x));
    Tensor gated = activation_function(act_fn, gate) * up;
    Tensor result = down_proj(gated);
    gated.reset();
    drop(gate, up);
    return result;
  }
};

/// DeepseekV4SparseMoeBlock
struct DeepseekV4Mixture {
  DeepseekV4Router gate;
  Experts experts;
  LimitedMlp shared_experts;

  DeepseekV4Mixture(ModuleBuilder& b, const DeepseekV4Spec& spec, bool hashed)
      : gate(b.scope("gate", [&] { return DeepseekV4Router(b, spec, hashed); })),
        experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {.apply_gate = apply_limited_gate}); })),
        shared_experts(b.scope("shared_experts", [&] { return LimitedMlp(b, spec); })) {}

  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const Tensor& input_ids) const {
    Tensor flat = view(hidden_states, {-1, hidden_states.size(-1)});
    Tensor result, routed;
    {
      const Routing routing = experts.local(gate.forward(hidden_states, input_ids));
      routed = view(experts.forward(flat, routing.top_k_index, routing.top_k_weights), hidden_states.shape());
      const Tensor shared = shared_experts.forward(hidden_states);
      result = routed + shared;
      flat.reset();
    }
    routed.reset();
    return result;
  }
};

/// DeepseekV4DecoderLayer
struct DeepseekV4Layer {
  DeepseekV4Attention self_attn;
  DeepseekV4Mixture mlp;
  RmsNorm input_layernorm, post_attention_layernorm;
  HyperConnection attn_hc, ffn_hc;

  DeepseekV4Layer(ModuleBuilder& b, const DeepseekV4Spec& spec, std::vector<Rotaries>& rotaries, std::size_t layer)
      : self_attn(b.scope("self_attn", [&] { return DeepseekV4Attention(b, spec, rotaries, layer); })),
        mlp(b.scope("mlp", [&] { return DeepseekV4Mixture(b, spec, spec.hashed_layers[layer]); })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size),
        attn_hc(b.scope("attn_hc", [&] { return HyperConnection(b, spec); })),
        ffn_hc(b.scope("ffn_hc", [&] { return HyperConnection(b, spec); })) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const LayerInputs& inputs, KeyValueCache* cache) const {
    Tensor hidden_states = input, attn_output, weights, mlp_output;
    HyperConnection::Mix mix = attn_hc.forward(hidden_states);
    {
      const Tensor normed = input_layernorm(mix.collapsed);
      AttentionResult attention = self_attn.forward(normed, inputs, cache);
      attn_output = std::move(attention.output);
      weights = std::move(attention.weights);
    }
    hidden_states = mix.joined(attn_output, hidden_states);
    mix = ffn_hc.forward(hidden_states);
    {
      const Tensor normed = post_attention_layernorm(mix.collapsed);
      mlp_output = mlp.forward(normed, inputs.input_ids);
    }
    Tensor result = mix.joined(mlp_output, hidden_states);
    hidden_states.reset();
    mix.clear();
    drop(attn_output, weights, mlp_output);
    return result;
  }
};

class DeepseekV4ForCausalLm final : public DecoderModel {
 public:
  DeepseekV4ForCausalLm(const DeepseekV4Spec& spec, const RunSpec& run, ModuleBuilder& b)
      : DecoderModel(run, spec.hidden_act), hc_mult_(spec.hc_mult) {
    if (run.task == Task::kSequenceClassification) throw refusal(rules::kNoClassifier);
    sliding_window = spec.sliding_window;
    std::vector<Rotaries> rotaries;  // in the order of the modules
    b.scope("model", [&] {
      embed_tokens_ = Embedding(b, "embed_tokens", spec.vocab_size, spec.hidden_size);
      for (std::size_t i = 0; i < spec.layers.size(); ++i) {
        layers_.push_back(
            b.scope("layers." + std::to_string(i), [&] { return DeepseekV4Layer(b, spec, rotaries, i); }));
      }
      norm_ = RmsNorm(b, "norm", spec.hidden_size);
      rotaries.emplace_back(b, spec);
      hc_head_ = b.scope("hc_head", [&] { return HyperHead(b, spec); });
      return 0;
    });
    rotary_emb_ = rotaries.back();
    for (const Rotaries& each : rotaries) each.initialize(b);
    build_head(b, embed_tokens_,
               {.width = spec.hidden_size, .vocabulary = spec.vocab_size, .tied = spec.tie_word_embeddings});
  }

 private:
  [[nodiscard]] Tensor decode(const Batch& batch, KeyValueCache* cache) const override {
    if (cache != nullptr && cache->is_filled()) throw refusal(rules::kLinearStatesRead);
    Tensor inputs_embeds = embed_tokens_(batch.input_ids);
    LayerInputs inputs;
    inputs.position_ids = position_ids_of(batch, inputs_embeds);
    inputs.mask = create_causal_mask(run_, inputs_embeds, batch, PastTokens(cache), sliding_window);
    inputs.input_ids = batch.input_ids;
    Tensor hidden_states = contiguous(expand(unsqueeze(inputs_embeds, 2), {-1, -1, hc_mult_, -1}));
    for (const std::size_t type : {0U, 1U}) {
      std::tie(inputs.cos[type], inputs.sin[type]) = rotary_emb_.forward(type, inputs_embeds, inputs.position_ids);
    }
    for (const DeepseekV4Layer& layer : layers_) {
      hidden_states = checkpointed(
          run_, {hidden_states},
          {inputs.cos[0], inputs.sin[0], inputs.cos[1], inputs.sin[1], inputs.position_ids, inputs.mask,
           inputs.input_ids},
          [&layer, cache](const KeptTensors& kept) {
            return layer.forward(kept[0], {{kept[1], kept[3]}, {kept[2], kept[4]}, kept[5], kept[6], kept[7]}, cache);
          },
          cache);
    }
    {
      const Tensor collapsed = hc_head_(hidden_states);
      hidden_states = norm_(collapsed);
    }
    drop(inputs.position_ids, inputs_embeds, inputs.mask);
    for (const std::size_t type : {0U, 1U}) drop(inputs.cos[type], inputs.sin[type]);
    return hidden_states;
  }

  std::int64_t hc_mult_;
  Embedding embed_tokens_;
  std::vector<DeepseekV4Layer> layers_;
  RmsNorm norm_;
  Rotaries rotary_emb_;
  HyperHead hc_head_;
};

}  // namespace

std::unique_ptr<Model> build_deepseek_v4(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<DeepseekV4ForCausalLm>(architecture.as<DeepseekV4Spec>(), run, builder);
}

}  // namespace memcalc
