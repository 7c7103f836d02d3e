// LLaDA: the hub's own modeling_llada.py (GSAI-ML/LLaDA-8B-Base), as dllm's copy of it runs (github.com/ZHZisZZ/dllm,
// dllm/pipelines/llada/models/modeling_llada.py at ca176752).
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/families/llada/spec.h"
#include "memcalc/models/encoder_parts.h"
#include "memcalc/models/hooked_module.h"
#include "memcalc/models/model.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/ops/attention.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/repeat_interleave.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// torch.autocast(enabled=False) as long as it lives.
class WithoutAutocast {
 public:
  explicit WithoutAutocast(Tape& tape) : off_(tape.modes.autocast.dtype, std::nullopt) {}

 private:
  Scoped<std::optional<DType>> off_;
};

/// F.dropout, which Dropout.forward leaves out where its probability is 0.
Tensor dropped(const Tensor& x, double probability) { return probability == 0 ? x : dropout(x, probability); }

/// RMSLayerNorm: its numbers are cast back before the weight is there.
struct LladaRmsNorm {
  Tensor weight, bias;

  LladaRmsNorm() = default;
  LladaRmsNorm(ModuleBuilder& b, std::string_view name, const LladaSpec& spec)
      : weight(b.parameter(std::string(name) + ".weight", {spec.hidden_size}, false)) {
    if (spec.bias) bias = b.parameter(std::string(name) + ".bias", {spec.hidden_size}, false);
  }

  [[nodiscard]] Tensor operator()(const Tensor& x) const {
    return hooked_module(*this, {&weight, &bias}, x, [this](const Tensor& hooked_x) { return normalize(hooked_x); });
  }

 private:
  [[nodiscard]] Tensor normalize(const Tensor& input) const {
    Tensor x, variance;
    {
      const WithoutAutocast off(input.tape());
      x = to_dtype(input, DType::kFloat32);
      variance = mean_last(power(x));
      x = x * reciprocal_sqrt(add_scalar(variance));
      x = to_dtype(x, input.dtype());
    }
    Tensor result = weight * x;
    if (bias.defined()) result = std::move(result) + bias;
    drop(x, variance);
    return result;
  }
};

/// BufferCache: sines and cosines of every position that the model may see, float32, of all blocks together.
struct LladaPositions {
  Tensor sin, cos;

  LladaPositions() = default;
  LladaPositions(ModuleBuilder& b, const LladaSpec& spec) {
    const std::int64_t positions = spec.max_position_embeddings, half = spec.head_dim / 2;
    Tensor inv_freq;
    {
      const Tensor powers =
          no_grad::power_of_number(no_grad::divide(no_grad::arange(b.tape, half, DType::kFloat32)));
      inv_freq = no_grad::multiply(no_grad::reciprocal(powers));
    }
    Tensor seq = no_grad::arange(b.tape, positions, DType::kFloat32);
    Tensor freqs = no_grad::multiply(no_grad::unsqueeze(seq, -1), inv_freq);
    Tensor twice = no_grad::zeros(b.tape, {1, 1, positions, spec.head_dim}, DType::kFloat32);  // torch.cat
    sin = no_grad::sine(twice);
    cos = no_grad::cosine(twice);
    for (const Tensor* table : {&sin, &cos}) b.tape.memory.set_category(table->block(), Category::kWeights);
    drop(inv_freq, seq, freqs, twice);
  }
};

/// rotate_half by view and unbind, whose backward is one stack.
Tensor rotated_half(const Tensor& x) {
  const std::int64_t half = x.size(3) / 2;
  std::vector<Tensor> halves = unbind(view(x, {x.size(0), x.size(1), x.size(2), 2, half}), 3);
  return cat(negate(halves[1]), halves[0], -1);
}

/// LLaDALlamaBlock
struct LladaBlock {
  Linear attn_out, ff_out;
  LladaRmsNorm attn_norm, ff_norm;
  Linear q_proj, k_proj, v_proj, ff_proj, up_proj;
  std::int64_t heads, kv_heads, head_dim;
  bool rotates_in_float32;
  double attention_dropout, residual_dropout;

  /// `positions`: made with the first block.
  LladaBlock(ModuleBuilder& b, const LladaSpec& spec, const RunSpec& run, LladaPositions& positions)
      : attn_out(b, "attn_out", spec.hidden_size, spec.hidden_size, spec.bias),
        ff_out(b, "ff_out", spec.intermediate_size, spec.hidden_size, spec.bias),
        heads(spec.num_attention_heads),
        kv_heads(spec.num_key_value_heads),
        head_dim(spec.head_dim),
        rotates_in_float32(spec.rotates_in_float32),
        attention_dropout(dropout_probability(run, spec.attention_dropout)),
        residual_dropout(dropout_probability(run, spec.residual_dropout)) {
    if (!positions.sin.defined()) positions = LladaPositions(b, spec);
    attn_norm = LladaRmsNorm(b, "attn_norm", spec);
    ff_norm = LladaRmsNorm(b, "ff_norm", spec);
    const std::int64_t keys = checked_multiply(kv_heads, head_dim);
    q_proj = Linear(b, "q_proj", spec.hidden_size, spec.hidden_size, spec.qkv_bias);
    k_proj = Linear(b, "k_proj", spec.hidden_size, keys, spec.qkv_bias);
    v_proj = Linear(b, "v_proj", spec.hidden_size, keys, spec.qkv_bias);
    ff_proj = Linear(b, "ff_proj", spec.hidden_size, spec.intermediate_size, spec.bias);
    up_proj = Linear(b, "up_proj", spec.hidden_size, spec.intermediate_size, spec.bias);
  }

  [[nodiscard]] Tensor forward(const Tensor& input, const Tensor& attention_bias, const Tensor& sin,
                               const Tensor& cos) const {
    Tensor x = input, x_normed, q, k, v, att, og_x, x_up;
    const Locals locals(x, x_normed, q, k, v, att, og_x, x_up);
    x_normed = attn_norm(x);
    q = q_proj(x_normed);
    k = k_proj(x_normed);
    v = v_proj(x_normed);
    att = attention(q, k, v, attention_bias, sin, cos);
    x = x + dropped(att, residual_dropout);
    og_x = x;
    x = ff_norm(x);
    Tensor gate = ff_proj(x);
    x_up = up_proj(x);
    x = std::move(gate);
    x = silu(x);
    x = x * x_up;
    x = ff_out(x);
    x = dropped(x, residual_dropout);
    Tensor output = og_x + x;
    return output;
  }

 private:
  [[nodiscard]] Tensor split_heads(const Tensor& x, std::int64_t count) const {
    return transpose(view(x, {x.size(0), x.size(1), count, head_dim}), 1, 2);
  }

  /// RotaryEmbedding.forward
  void rotate(Tensor& query, Tensor& key, const Tensor& sin, const Tensor& cos) const {
    const DType q_type = query.dtype(), k_type = key.dtype();
    Tensor wide_q = rotates_in_float32 ? to_dtype(query, DType::kFloat32) : query;
    Tensor wide_k = rotates_in_float32 ? to_dtype(key, DType::kFloat32) : key;
    {
      const WithoutAutocast off(query.tape());
      const std::int64_t tokens = query.size(2);
      const Tensor pos_sin = to_dtype(slice(sin, 2, 0, tokens), wide_q.dtype());
      const Tensor pos_cos = to_dtype(slice(cos, 2, 0, tokens), wide_q.dtype());
      for (Tensor* wide : {&wide_q, &wide_k}) {
        Tensor scaled = *wide * pos_cos;
        Tensor product = rotated_half(*wide) * pos_sin;
        *wide = std::move(scaled) + std::move(product);
      }
    }
    Tensor q_cast = to_dtype(wide_q, q_type);
    Tensor k_cast = to_dtype(wide_k, k_type);
    drop(wide_q, wide_k);
    query = std::move(q_cast);
    key = std::move(k_cast);
  }

  [[nodiscard]] Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& attention_bias,
                                 const Tensor& sin, const Tensor& cos) const {
    Tensor query = split_heads(q, heads), key = split_heads(k, kv_heads), value = split_heads(v, kv_heads), bias, att;
    const Locals locals(query, key, value, bias, att);
    rotate(query, key, sin, cos);
    if (attention_bias.defined()) bias = to_dtype(attention_bias, k.dtype());  // _cast_attn_bias
    {
      const Tensor keys = kv_heads == heads ? key : repeat_interleave(key, heads / kv_heads, 1);
      const Tensor values = kv_heads == heads ? value : repeat_interleave(value, heads / kv_heads, 1);
      // LLaDAModel.__init__ calls torch.backends.cuda.enable_mem_efficient_sdp(False).
      att = scaled_dot_product_attention(query, keys, values, bias,
                                         {.dropout = attention_dropout, .memory_efficient = false});
    }
    att = view(contiguous(transpose(att, 1, 2)), {q.size(0), q.size(1), -1});
    Tensor output = attn_out(att);
    return output;
  }
};

/// LLaDAModelLM
class LladaModel : public Model {
 public:
  LladaModel(const LladaSpec& spec, const RunSpec& run, ModuleBuilder& b)
      : run_(run),
        vocabulary_(spec.vocab_size),
        embedding_dropout_(dropout_probability(run, spec.embedding_dropout)),
        scales_embedding_(spec.scales_embedding),
        scales_logits_(spec.scales_logits) {
    accepts_loss_kwargs = false;
    b.scope("model.transformer", [&] {
      wte_ = Embedding(b, "wte", spec.vocab_size, spec.hidden_size);
      ln_f_ = LladaRmsNorm(b, "ln_f", spec);
      for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
        blocks_.push_back(
            b.scope("blocks." + std::to_string(i), [&] { return LladaBlock(b, spec, run, positions_); }));
      }
      if (spec.tie_word_embeddings) {
        ff_out_.weight = wte_.weight;
      } else {
        ff_out_ = Linear(b, "ff_out", spec.hidden_size, spec.vocab_size, spec.bias);
      }
      return 0;
    });
  }

  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    ModelOutput output;
    output.logits = predict(batch);
    set_label_loss(output, batch.labels, vocabulary_);
    return output;
  }

 private:
  /// LLaDAModel.forward
  [[nodiscard]] Tensor predict(const Batch& batch) const {
    Tensor x = wte_(batch.input_ids), attention_bias;
    const Locals locals(x, attention_bias);
    if (scales_embedding_) x = multiply_scalar(x);
    x = dropped(x, embedding_dropout_);
    if (batch.attention_mask.defined() && batch.padded) {  // zeros and what is masked: [batch, 1, tokens, tokens]
      const std::int64_t tokens = x.size(1);
      attention_bias = no_grad::zeros(x.tape(), {x.size(0), 1, tokens, tokens}, DType::kFloat32);
    }
    for (const LladaBlock& block : blocks_) {
      x = checkpointed(run_, {x}, {attention_bias, positions_.sin, positions_.cos},
                       [&block](const KeptTensors& kept) { return block.forward(kept[0], kept[1], kept[2], kept[3]); });
    }
    x = ln_f_(x);
    Tensor logits = ff_out_(x);
    if (scales_logits_) logits = multiply_in_place(logits);
    return logits;
  }

  RunSpec run_;
  std::int64_t vocabulary_;
  double embedding_dropout_;
  bool scales_embedding_, scales_logits_;
  Embedding wte_;
  LladaRmsNorm ln_f_;
  LladaPositions positions_;
  std::vector<LladaBlock> blocks_;
  Linear ff_out_;
};

}  // namespace

std::unique_ptr<Model> build_llada(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<LladaModel>(architecture.as<LladaSpec>(), run, builder);
}

}  // namespace memcalc
