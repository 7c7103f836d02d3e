// LLaMA and Mistral: transformers models/llama/modeling_llama.py, models/mistral/modeling_mistral.py.
#include <tuple>

#include "memcalc/models/attention.h"
#include "memcalc/models/model.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

constexpr Operator kTiedWeight{"tied parameter"};
constexpr Operator kArange{"aten::arange"}, kDiv{"aten::div"}, kPow{"aten::pow"}, kReciprocal{"aten::reciprocal"};
constexpr Operator kMul{"aten::mul"};

struct RotaryPositions {
  Tensor cos, sin;
};

struct SelfAttention {
  Linear q_proj, k_proj, v_proj, o_proj;
  std::int64_t head_dim;
  AttentionOptions options;

  SelfAttention(ModuleBuilder& b, const LlamaSpec& spec, const AttentionOptions& options)
      : q_proj(b, "q_proj", spec.hidden_size, checked_multiply(spec.num_attention_heads, spec.head_dim),
               spec.attention_bias),
        k_proj(b, "k_proj", spec.hidden_size, checked_multiply(spec.num_key_value_heads, spec.head_dim),
               spec.attention_bias),
        v_proj(b, "v_proj", spec.hidden_size, checked_multiply(spec.num_key_value_heads, spec.head_dim),
               spec.attention_bias),
        o_proj(b, "o_proj", checked_multiply(spec.num_attention_heads, spec.head_dim), spec.hidden_size,
               spec.attention_bias),
        head_dim(spec.head_dim),
        options(options) {}

  [[nodiscard]] Tensor heads(const Linear& projection, const Tensor& hidden_states) const {
    return transpose(view(projection(hidden_states), {hidden_states.size(0), hidden_states.size(1), -1, head_dim}), 1,
                     2);
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, std::vector<Tensor>* cache) const {
    Tensor query_states = heads(q_proj, hidden_states);
    Tensor key_states = heads(k_proj, hidden_states);
    Tensor value_states = heads(v_proj, hidden_states);
    apply_rotary(query_states, key_states, positions.cos, positions.sin);
    if (cache != nullptr) update_cache(*cache, key_states, value_states);
    AttentionResult result = attention_interface(query_states, key_states, value_states, mask, options);
    result.output = reshape(result.output, {hidden_states.size(0), hidden_states.size(1), -1});
    result.output = o_proj(result.output);
    drop(query_states, key_states, value_states);
    return result;
  }
};

struct Mlp {
  Linear gate_proj, up_proj, down_proj;
  std::string act_fn;

  Mlp(ModuleBuilder& b, const LlamaSpec& spec)
      : gate_proj(b, "gate_proj", spec.hidden_size, spec.intermediate_size, spec.mlp_bias),
        up_proj(b, "up_proj", spec.hidden_size, spec.intermediate_size, spec.mlp_bias),
        down_proj(b, "down_proj", spec.intermediate_size, spec.hidden_size, spec.mlp_bias),
        act_fn(spec.hidden_act) {}

  [[nodiscard]] Tensor forward(const Tensor& x) const {
    Tensor activated;
    {
      const Tensor gate = gate_proj(x);
      activated = activation_function(act_fn, gate);
    }
    Tensor product = std::move(activated) * up_proj(x);
    return down_proj(product);
  }
};

struct DecoderLayer {
  SelfAttention self_attn;
  Mlp mlp;
  RmsNorm input_layernorm, post_attention_layernorm;

  DecoderLayer(ModuleBuilder& b, const LlamaSpec& spec, const AttentionOptions& options)
      : self_attn(b.scope("self_attn", [&] { return SelfAttention(b, spec, options); })),
        mlp(b.scope("mlp", [&] { return Mlp(b, spec); })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               std::vector<Tensor>* cache) const {
    Tensor residual = input;
    Tensor hidden_states = input_layernorm(input);
    AttentionResult attention = self_attn.forward(hidden_states, positions, mask, cache);
    hidden_states = std::move(attention.output);
    hidden_states = residual + hidden_states;
    residual = hidden_states;
    hidden_states = post_attention_layernorm(hidden_states);
    hidden_states = mlp.forward(hidden_states);
    hidden_states = residual + hidden_states;
    drop(residual, attention.weights);
    return hidden_states;
  }
};

class LlamaForCausalLm : public Model {
 public:
  LlamaForCausalLm(const LlamaSpec& spec, const RunSpec& run, ModuleBuilder& b)
      : run_(run), sliding_window_(spec.sliding_window) {
    check_activation_function(spec.hidden_act);
    loss_shifts_labels = true;
    const AttentionOptions options{.implementation = run.attention,
                                   .dropout = dropout_probability(run, spec.attention_dropout),
                                   .causal = true,
                                   .softmax_in_float32 = true};
    b.scope("model", [&] {
      embed_tokens_ = Embedding(b, "embed_tokens", spec.vocab_size, spec.hidden_size);
      for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
        layers_.push_back(b.scope("layers." + std::to_string(i), [&] { return DecoderLayer(b, spec, options); }));
      }
      norm_ = RmsNorm(b, "norm", spec.hidden_size);
      return 0;
    });
    inverse_frequencies_ = rope_parameters(b, spec.head_dim / 2);
    original_inverse_frequencies_ = b.buffer({spec.head_dim / 2}, DType::kFloat32);
    rope_parameters(b, spec.head_dim / 2).reset();  // _init_weights computes them again and copies
    if (spec.tie_word_embeddings) {  // lm_head's own weight lives until it is tied
      b.tape.scratch(embed_tokens_.weight.bytes(), kTiedWeight, Category::kWeights);
      lm_head_.weight = embed_tokens_.weight;
    } else {
      lm_head_ = Linear(b, "lm_head", spec.hidden_size, spec.vocab_size, false);
    }
  }

  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    ModelOutput output;
    std::vector<Tensor>* cache = run_.use_cache ? &output.past_key_values : nullptr;
    Tensor hidden_states = decode(batch, cache);
    output.logits = lm_head_(hidden_states);
    output.loss = causal_lm_loss(output.logits, batch.labels, batch.number_of_items);
    return output;
  }

 private:
  /// 1 / theta ** (arange(0, D, 2) / D), as compute_default_rope_parameters takes its temporaries.
  [[nodiscard]] static Tensor rope_parameters(ModuleBuilder& b, std::int64_t half) {
    Tape& tape = b.tape;
    Tensor range = tape.empty({half}, DType::kFloat32, kArange);
    Tensor quotient = tape.empty({half}, DType::kFloat32, kDiv);
    range.reset();
    Tensor powers = tape.empty({half}, DType::kFloat32, kPow);
    tape.scratch(8, kPow);
    quotient.reset();
    Tensor reciprocal = tape.empty({half}, DType::kFloat32, kReciprocal);
    Tensor inverse = tape.empty({half}, DType::kFloat32, kMul, Category::kWeights);
    drop(reciprocal, powers);
    return inverse;
  }

  [[nodiscard]] Tensor decode(const Batch& batch, std::vector<Tensor>* cache) const {
    Tensor hidden_states = embed_tokens_(batch.input_ids);
    Tensor inputs_embeds = hidden_states;
    Tensor position_ids = make_position_ids(hidden_states.tape(), hidden_states.size(1));
    Tensor causal_mask = create_causal_mask(run_, hidden_states, batch, cache != nullptr, sliding_window_);
    RotaryPositions positions;
    std::tie(positions.cos, positions.sin) = rotary_embedding(hidden_states, inverse_frequencies_, position_ids);
    for (const DecoderLayer& layer : layers_) {
      hidden_states = checkpointed(run_, {hidden_states}, {causal_mask, positions.cos, positions.sin, position_ids},
                                   [&layer, cache](const KeptTensors& kept) {
                                     return layer.forward(kept[0], {kept[2], kept[3]}, kept[1], cache);
                                   });
    }
    hidden_states = norm_(hidden_states);
    drop(position_ids, inputs_embeds, causal_mask, positions.cos, positions.sin);
    return hidden_states;
  }

  RunSpec run_;
  std::optional<std::int64_t> sliding_window_;
  Embedding embed_tokens_;
  std::vector<DecoderLayer> layers_;
  RmsNorm norm_;
  Tensor inverse_frequencies_, original_inverse_frequencies_;
  Linear lm_head_;
};

}  // namespace

std::unique_ptr<Model> build_llama(const LlamaSpec& spec, const RunSpec& run, ModuleBuilder& builder) {
  if (run.task != Task::kCausalLm) {
    throw Error(ErrorCode::kUnsupported, "LLaMA is modelled with its language-model head; accepted: --task causal");
  }
  return std::make_unique<LlamaForCausalLm>(spec, run, builder);
}

}  // namespace memcalc
