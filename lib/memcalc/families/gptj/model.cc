// GPT-J: transformers models/gptj/modeling_gptj.py.
// MIRRORS(transformers, "models/gptj/modeling_gptj.py", "5.17.0")
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "memcalc/families/gptj/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/decoder_model.h"
#include "memcalc/models/interleaved_rotary.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// apply_rotary_pos_emb
Tensor rotate_pairs(const Tensor& tensor, const Tensor& sin_of_pairs, const Tensor& cos_of_pairs) {
  Tensor sin = each_twice(unsqueeze(sin_of_pairs, 2));
  Tensor cos = each_twice(unsqueeze(cos_of_pairs, 2));
  Tensor scaled = tensor * cos;
  Tensor rotated = rotate_every_two(tensor);
  Tensor product = std::move(rotated) * sin;
  Tensor result = std::move(scaled) + std::move(product);
  drop(sin, cos);
  return result;
}

struct Block {
  LayerNorm ln_1;
  Linear k_proj, v_proj, q_proj, out_proj;
  Tensor embed_positions;
  Linear fc_in, fc_out;
  std::int64_t heads, head_dim, rotary_dim;
  double attn_pdrop, resid_pdrop;
  std::string activation;

  Block(ModuleBuilder& b, const GptjSpec& spec, const RunSpec& run)
      : ln_1(b, "ln_1", spec.n_embd),
        k_proj(b, "attn.k_proj", spec.n_embd, spec.n_embd, false),
        v_proj(b, "attn.v_proj", spec.n_embd, spec.n_embd, false),
        q_proj(b, "attn.q_proj", spec.n_embd, spec.n_embd, false),
        out_proj(b, "attn.out_proj", spec.n_embd, spec.n_embd, false),
        embed_positions(b.buffer({spec.n_positions, spec.rotary_dim}, DType::kFloat32)),
        fc_in(b, "mlp.fc_in", spec.n_embd, spec.n_inner),
        fc_out(b, "mlp.fc_out", spec.n_inner, spec.n_embd),
        heads(spec.n_head),
        head_dim(spec.n_embd / spec.n_head),
        rotary_dim(spec.rotary_dim),
        attn_pdrop(dropout_probability(run, spec.attn_pdrop)),
        resid_pdrop(dropout_probability(run, spec.resid_pdrop)),
        activation(spec.activation_function) {}

  /// _attn
  [[nodiscard]] AttentionResult attend(const Tensor& query_states, const Tensor& key_states, const Tensor& value,
                                       const Tensor& mask) const {
    Tensor query = to_dtype(query_states, DType::kFloat32);
    Tensor key = to_dtype(key_states, DType::kFloat32);
    AttentionResult result;
    Tensor& attn_weights = result.weights;
    attn_weights = matmul(query, transpose(key, 2, 3));
    attn_weights = divide_scalar(attn_weights);
    if (mask.defined()) attn_weights = attn_weights + mask;
    attn_weights = softmax(attn_weights);
    attn_weights = to_dtype(attn_weights, value.dtype());
    attn_weights = dropout(attn_weights, attn_pdrop);
    result.output = matmul(attn_weights, value);
    drop(query, key);
    return result;
  }

  [[nodiscard]] AttentionResult attention(const Tensor& hidden_states, const Tensor& mask, const Tensor& position_ids,
                                          KeyValueCache* cache) const {
    Tensor query, key, value, embedded, repeated_position_ids, sincos, sin, cos, k_rot, k_pass, q_rot, q_pass;
    const Locals locals(query, key, value, embedded, repeated_position_ids, sincos, sin, cos, k_rot, k_pass, q_rot,
                        q_pass);
    query = q_proj(hidden_states);
    key = k_proj(hidden_states);
    value = v_proj(hidden_states);
    const Shape shape{hidden_states.size(0), hidden_states.size(1), heads, head_dim};
    query = view(query, shape);
    key = view(key, shape);
    value = permute(view(value, shape), {0, 2, 1, 3});
    embedded = repeat(embed_positions, {position_ids.size(0), 1, 1});
    repeated_position_ids = repeat(unsqueeze(position_ids, -1), {1, 1, rotary_dim});
    sincos = to_dtype(gather(embedded, repeated_position_ids), key.dtype());
    std::tie(sin, cos) = split_last(sincos, rotary_dim / 2);
    const std::int64_t rest = head_dim - rotary_dim;
    k_rot = slice(key, -1, 0, rotary_dim);
    k_pass = slice(key, -1, rotary_dim, rest);
    q_rot = slice(query, -1, 0, rotary_dim);
    q_pass = slice(query, -1, rotary_dim, rest);
    k_rot = rotate_pairs(k_rot, sin, cos);
    q_rot = rotate_pairs(q_rot, sin, cos);
    key = cat(k_rot, k_pass, -1);
    query = cat(q_rot, q_pass, -1);
    key = permute(key, {0, 2, 1, 3});
    query = permute(query, {0, 2, 1, 3});
    if (cache != nullptr) cache->update(key, value);
    AttentionResult result = attend(query, key, value, mask);
    result.output = view(contiguous(permute(result.output, {0, 2, 1, 3})), hidden_states.shape());
    result.output = out_proj(result.output);
    result.output = dropout(result.output, resid_pdrop);
    return result;
  }

  [[nodiscard]] Tensor mlp(const Tensor& x) const {
    Tensor hidden_states = fc_in(x);
    hidden_states = activation_function(activation, hidden_states);
    hidden_states = fc_out(hidden_states);
    hidden_states = dropout(hidden_states, resid_pdrop);
    return hidden_states;
  }

  /// Beside the hidden states it returns its attention weights.
  [[nodiscard]] Tensor forward(const Tensor& input, const Tensor& mask, const Tensor& position_ids,
                               KeyValueCache* cache, Tensor& attn_weights) const {
    Tensor hidden_states, feed_forward_hidden_states;
    AttentionResult attn;
    const Locals locals(hidden_states, attn.output, attn.weights, feed_forward_hidden_states);
    hidden_states = ln_1(input);
    attn = attention(hidden_states, mask, position_ids, cache);
    feed_forward_hidden_states = mlp(hidden_states);
    Tensor output = attn.output + feed_forward_hidden_states + input;
    if (!output.tape().moment.recomputing) attn_weights = std::move(attn.weights);
    return output;
  }
};

class GptjForCausalLm : public DecoderModel {
 public:
  GptjForCausalLm(const GptjSpec& spec, const RunSpec& run, ModuleBuilder& b)
      : DecoderModel(run, spec.activation_function), embd_pdrop_(dropout_probability(run, spec.embd_pdrop)) {
    b.scope("transformer", [&] {
      wte_ = Embedding(b, "wte", spec.vocab_size, spec.n_embd);
      for (std::int64_t i = 0; i < spec.n_layer; ++i) {
        h_.push_back(b.scope("h." + std::to_string(i), [&] { return Block(b, spec, run); }));
      }
      ln_f_ = LayerNorm(b, "ln_f", spec.n_embd);
      return 0;
    });
    build_head(b, wte_,
               {.width = spec.n_embd,
                .vocabulary = spec.vocab_size,
                .labels = spec.num_labels,
                .tied = spec.tie_word_embeddings,
                .bias = true});
  }

 private:
  [[nodiscard]] Tensor decode(const Batch& batch, KeyValueCache* cache) const override {
    Tensor inputs_embeds = wte_(batch.input_ids);
    Tensor position_ids = position_ids_of(batch, inputs_embeds);
    Tensor causal_mask = create_causal_mask(run_, inputs_embeds, batch, cache);
    Tensor hidden_states = dropout(inputs_embeds, embd_pdrop_);
    BlockOutputs outputs = run_blocks(h_, std::move(hidden_states), {causal_mask, position_ids}, cache,
                                      [cache](const Block& block, const KeptTensors& kept, Tensor& attn_weights) {
                                        return block.forward(kept[0], kept[1], kept[2], cache, attn_weights);
                                      });
    hidden_states = ln_f_(std::exchange(outputs.hidden_states, {}));
    drop(position_ids, inputs_embeds, causal_mask, outputs.attn_weights, outputs.returned);
    return hidden_states;
  }

  double embd_pdrop_;
  Embedding wte_;
  std::vector<Block> h_;
  LayerNorm ln_f_;
};

}  // namespace

std::unique_ptr<Model> build_gptj(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<GptjForCausalLm>(architecture.as<GptjSpec>(), run, builder);
}

}  // namespace memcalc
