// MPT: transformers models/mpt/modeling_mpt.py.
// MIRRORS(transformers, "models/mpt/modeling_mpt.py", "5.17.0")
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/families/mpt/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/decoder_model.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// LayerNorm(hidden_size) whose bias is set to None.
LayerNorm without_bias(ModuleBuilder& b, const std::string& name, std::int64_t width) {
  LayerNorm norm;
  norm.weight = b.parameter(name + ".weight", {width}, false);
  b.until_tied({width}).reset();
  return norm;
}

/// build_mpt_alibi_tensor: [heads, 1, max_seq_len] in float32.
Tensor build_mpt_alibi_tensor(Tape& tape, std::int64_t heads, std::int64_t length) {
  const auto slots = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(heads)));
  Tensor alibi = no_grad::view(no_grad::arange(tape, length, DType::kInt32), {1, 1, 1, length});
  Tensor base = no_grad::multiply(no_grad::to(no_grad::arange(tape, slots), DType::kFloat32));
  Tensor slopes;
  {
    Tensor power = no_grad::power_of_number(base);
    Tensor reciprocal = no_grad::reciprocal(power);
    slopes = no_grad::multiply(reciprocal);
    drop(reciprocal, power);
  }
  if (slots != heads) {  // concat([slopes[:, 1::2], slopes[:, ::2]])[:, :heads]
    const Tensor odd = no_grad::slice(slopes, 0, 0, slots / 2), even = no_grad::slice(slopes, 0, 0, slots - slots / 2);
    slopes = no_grad::cat(odd, even, 0);
    slopes = no_grad::slice(slopes, 0, 0, heads);
  }
  alibi = no_grad::multiply(alibi, no_grad::view(slopes, {1, heads, 1, 1}));
  Tensor result = no_grad::view(alibi, {heads, 1, length});
  drop(alibi, base, slopes);
  return result;
}

struct Block {
  LayerNorm norm_1;
  Linear Wqkv, out_proj;  // NOLINT(readability-identifier-naming): the module's name
  LayerNorm norm_2;
  Linear up_proj, down_proj;
  std::int64_t heads, head_dim;
  double dropout_rate;
  bool clips_qkv;

  Block(ModuleBuilder& b, const MptSpec& spec, const RunSpec& run)
      : norm_1(without_bias(b, "norm_1", spec.d_model)),
        Wqkv(b, "attn.Wqkv", spec.d_model, 3 * spec.d_model, false),
        out_proj(b, "attn.out_proj", spec.d_model, spec.d_model, false),
        norm_2(without_bias(b, "norm_2", spec.d_model)),
        up_proj(b, "ffn.up_proj", spec.d_model, 4 * spec.d_model, false),
        down_proj(b, "ffn.down_proj", 4 * spec.d_model, spec.d_model, false),
        heads(spec.n_heads),
        head_dim(spec.d_model / spec.n_heads),
        dropout_rate(dropout_probability(run, spec.attn_pdrop)),
        clips_qkv(spec.clips_qkv) {}

  [[nodiscard]] AttentionResult attn(const Tensor& hidden_states, const Tensor& alibi, const Tensor& mask,
                                     KeyValueCache* cache) const {
    const std::int64_t batch = hidden_states.size(0), tokens = hidden_states.size(1);
    Tensor position_bias, mixed_qkv, query_states, key_states, value_states, attention_scores, context_states;
    const Locals locals(position_bias, mixed_qkv, query_states, key_states, value_states, attention_scores,
                        context_states);
    AttentionResult result;
    mixed_qkv = Wqkv(hidden_states);
    if (clips_qkv) mixed_qkv = clamp(mixed_qkv);
    {
      std::vector<Tensor> parts = split(mixed_qkv, 2, 3);
      query_states = std::move(parts[0]);
      key_states = std::move(parts[1]);
      value_states = std::move(parts[2]);
    }
    for (Tensor* states : {&query_states, &key_states, &value_states}) {
      *states = transpose(reshape(*states, {batch, tokens, heads, head_dim}), 1, 2);
    }
    if (cache != nullptr) cache->update(key_states, value_states);
    attention_scores = multiply_scalar(matmul(query_states, transpose(key_states, 2, 3)));
    const std::int64_t keys = key_states.size(2);
    position_bias = slice(alibi, 2, alibi.size(2) - keys, keys);
    attention_scores = attention_scores + position_bias;
    attention_scores = masked_fill(attention_scores, mask);
    result.weights = to_dtype(softmax(to_dtype(attention_scores, DType::kFloat32)), value_states.dtype());
    result.weights = dropout(result.weights, dropout_rate);
    context_states = matmul(result.weights, value_states);
    context_states = view(contiguous(permute(context_states, {0, 2, 1, 3})), {batch, tokens, -1});
    result.output = out_proj(context_states);
    return result;
  }

  [[nodiscard]] Tensor ffn(const Tensor& input, const Tensor& residual) const {
    Tensor hidden_states;
    {
      const Tensor widened = up_proj(input);
      hidden_states = gelu(widened);
    }
    Tensor intermediate_output = down_proj(hidden_states);
    Tensor output = dropout(intermediate_output, dropout_rate);
    output = output + residual;
    drop(hidden_states, intermediate_output);
    return output;
  }

  /// Beside the hidden states it returns its attention weights.
  [[nodiscard]] Tensor forward(const Tensor& input, const Tensor& alibi, const Tensor& mask, KeyValueCache* cache,
                               Tensor& attn_weights) const {
    Tensor hidden_states = input;
    Tensor layernorm_output = norm_1(hidden_states);
    Tensor residual = hidden_states;
    AttentionResult attention = attn(layernorm_output, alibi, mask, cache);
    hidden_states = dropout(attention.output, dropout_rate) + residual;
    layernorm_output = norm_2(hidden_states);
    residual = hidden_states;
    Tensor output = ffn(layernorm_output, residual);
    if (!output.tape().moment.recomputing) attn_weights = std::move(attention.weights);
    drop(hidden_states, layernorm_output, residual, attention.output, attention.weights);
    return output;
  }
};

class MptForCausalLm : public DecoderModel {
 public:
  MptForCausalLm(const MptSpec& spec, const RunSpec& run, ModuleBuilder& b)
      : DecoderModel(run, {}), heads_(spec.n_heads), max_seq_len_(spec.max_seq_len) {
    takes_position_ids = false;  // ALiBi
    b.scope("transformer", [&] {
      wte_ = Embedding(b, "wte", spec.vocab_size, spec.d_model);
      for (std::int64_t i = 0; i < spec.n_layers; ++i) {
        blocks_.push_back(b.scope("blocks." + std::to_string(i), [&] { return Block(b, spec, run); }));
      }
      norm_f_ = without_bias(b, "norm_f", spec.d_model);
      return 0;
    });
    build_head(b, wte_,
               {.width = spec.d_model,
                .vocabulary = spec.vocab_size,
                .labels = spec.num_labels,
                .tied = spec.tie_word_embeddings});
  }

 private:
  [[nodiscard]] Tensor decode(const Batch& batch, KeyValueCache* cache) const override {
    Tensor inputs_embeds = wte_(batch.input_ids);
    Tensor hidden_states = inputs_embeds;
    Tensor alibi = build_mpt_alibi_tensor(inputs_embeds.tape(), heads_, max_seq_len_);
    PastTokens past(cache);
    past.cached = true;  // no position_ids are passed: nobody looks for packed sequences
    Tensor causal_mask;
    {
      const Tensor additive = create_causal_mask(run_, inputs_embeds, batch, past);
      causal_mask = no_grad::to(additive, DType::kBool);
    }
    BlockOutputs outputs = run_blocks(blocks_, std::move(hidden_states), {causal_mask, alibi}, cache,
                                      [cache](const Block& block, const KeptTensors& kept, Tensor& attn_weights) {
                                        return block.forward(kept[0], kept[2], kept[1], cache, attn_weights);
                                      });
    hidden_states = norm_f_(std::exchange(outputs.hidden_states, {}));
    drop(inputs_embeds, alibi, causal_mask, outputs.attn_weights, outputs.returned);
    return hidden_states;
  }

  std::int64_t heads_, max_seq_len_;
  Embedding wte_;
  std::vector<Block> blocks_;
  LayerNorm norm_f_;
};

}  // namespace

std::unique_ptr<Model> build_mpt(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<MptForCausalLm>(architecture.as<MptSpec>(), run, builder);
}

}  // namespace memcalc
