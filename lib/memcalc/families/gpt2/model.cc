// GPT-2: transformers models/gpt2/modeling_gpt2.py.
// MIRRORS(transformers, "models/gpt2/modeling_gpt2.py", "5.17.0")
#include "memcalc/models/model.h"
#include "memcalc/families/gpt2/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/decoder_model.h"
#include "memcalc/models/megatron_config.h"
#include "memcalc/symbolic/capture.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// GPT2Attention's buffers before 5.0: a causal mask of all positions and, before it, a number.
struct CausalBuffers {
  Tensor bias, masked_bias;

  CausalBuffers(ModuleBuilder& b, std::int64_t n_positions) {
    const Gpt2Buffers kind = b.tape.behaviors.gpt2_buffers;
    if (kind == Gpt2Buffers::kNone) return;
    bias = b.buffer({n_positions, n_positions}, DType::kBool);
    if (kind == Gpt2Buffers::kMaskAndScalar) masked_bias = b.buffer({}, DType::kFloat32);
  }
};

struct Block {
  LayerNorm ln_1;
  CausalBuffers causal;
  Conv1D c_attn, attn_c_proj;
  LayerNorm ln_2;
  Conv1D c_fc, mlp_c_proj;
  std::int64_t head_dim;
  double resid_pdrop;
  std::string activation;
  AttentionOptions options;

  Block(ModuleBuilder& b, const Gpt2Spec& spec, const RunSpec& run, const AttentionOptions& options)
      : ln_1(b, "ln_1", spec.n_embd),
        causal(b, spec.n_positions),
        c_attn(b, "attn.c_attn", spec.n_embd, 3 * spec.n_embd),
        attn_c_proj(b, "attn.c_proj", spec.n_embd, spec.n_embd),
        ln_2(b, "ln_2", spec.n_embd),
        c_fc(b, "mlp.c_fc", spec.n_embd, spec.n_inner),
        mlp_c_proj(b, "mlp.c_proj", spec.n_inner, spec.n_embd),
        head_dim(spec.n_embd / spec.n_head),
        resid_pdrop(dropout_probability(run, spec.resid_pdrop)),
        activation(spec.activation_function),
        options(options) {}

  [[nodiscard]] AttentionResult attention(const Tensor& hidden_states, const Tensor& mask, KeyValueCache* cache) const {
    std::vector<Tensor> parts = split(c_attn(hidden_states), 2, 3);
    const Shape shape{hidden_states.size(0), hidden_states.size(1), -1, head_dim};
    Tensor key = transpose(view(parts[1], shape), 1, 2);
    Tensor value = transpose(view(parts[2], shape), 1, 2);
    Tensor query = transpose(view(parts[0], shape), 1, 2);
    parts.clear();
    if (cache != nullptr) cache->update(key, value);
    AttentionResult result = attention_interface(query, key, value, mask, options);
    result.output = reshape(result.output, hidden_states.shape());
    result.output = attn_c_proj(result.output);
    result.output = dropout(result.output, resid_pdrop);
    drop(query, key, value);
    return result;
  }

  [[nodiscard]] Tensor mlp(const Tensor& x) const {
    Tensor hidden_states = c_fc(x);
    hidden_states = activation_function(activation, hidden_states);
    hidden_states = mlp_c_proj(hidden_states);
    hidden_states = dropout(hidden_states, resid_pdrop);
    return hidden_states;
  }

  [[nodiscard]] Tensor forward(const Tensor& input, const Tensor& mask, KeyValueCache* cache) const {
    Tensor residual = input;
    Tensor hidden_states = ln_1(input);
    AttentionResult attn = attention(hidden_states, mask, cache);
    hidden_states = attn.output + residual;
    residual = hidden_states;
    hidden_states = ln_2(hidden_states);
    Tensor feed_forward = mlp(hidden_states);
    hidden_states = residual + feed_forward;
    drop(residual, attn.output, attn.weights, feed_forward);
    return hidden_states;
  }
};

class Gpt2LmHeadModel : public DecoderModel {
 public:
  Gpt2LmHeadModel(const Gpt2Spec& spec, const RunSpec& run, ModuleBuilder& b)
      : DecoderModel(run, spec.activation_function), embd_pdrop_(dropout_probability(run, spec.embd_pdrop)) {
    head_.loss_breaks_graph = true;
    loss_shifts_labels = false;  // no loss has this class's name
    const AttentionOptions options{.implementation = run.attention,
                                   .dropout = dropout_probability(run, spec.attn_pdrop),
                                   .causal = true,
                                   .weights_in_value_dtype = true};
    b.scope("transformer", [&] {
      wte_ = Embedding(b, "wte", spec.vocab_size, spec.n_embd);
      wpe_ = Embedding(b, "wpe", spec.n_positions, spec.n_embd);
      for (std::int64_t i = 0; i < spec.n_layer; ++i) {
        h_.push_back(b.scope("h." + std::to_string(i), [&] { return Block(b, spec, run, options); }));
      }
      ln_f_ = LayerNorm(b, "ln_f", spec.n_embd);
      return 0;
    });
    build_head(b, wte_,
               {.width = spec.n_embd,
                .vocabulary = spec.vocab_size,
                .labels = spec.num_labels,
                .tied = spec.tie_word_embeddings});
  }

 private:
  [[nodiscard]] Tensor decode(const Batch& batch, KeyValueCache* cache) const override {
    if (classifier_ && !batch.attention_mask.defined()) warn_if_padding(batch.input_ids);
    Tensor inputs_embeds = wte_(batch.input_ids);
    Tensor position_ids = position_ids_of(batch, inputs_embeds);
    Tensor position_embeds = wpe_(position_ids);
    Tensor hidden_states = inputs_embeds + position_embeds;
    Tensor causal_mask = create_causal_mask(run_, inputs_embeds, batch, cache);
    hidden_states = dropout(hidden_states, embd_pdrop_);
    for (const Block& block : h_) {
      // 4.57.6 passes cache_position by its place, too.
      const bool by_place = hidden_states.tape().behaviors.cache_positions;
      hidden_states = checkpointed(
          run_,
          by_place ? KeptTensors{hidden_states, causal_mask, position_ids} : KeptTensors{hidden_states, causal_mask},
          by_place ? KeptTensors{} : KeptTensors{position_ids},
          [&block, cache](const KeptTensors& kept) { return block.forward(kept[0], kept[1], cache); }, cache);
    }
    hidden_states = ln_f_(hidden_states);
    drop(position_ids, inputs_embeds, position_embeds, causal_mask);
    return hidden_states;
  }

  double embd_pdrop_;
  Embedding wte_, wpe_;
  std::vector<Block> h_;
  LayerNorm ln_f_;
};

}  // namespace

std::unique_ptr<Model> build_gpt2(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<Gpt2LmHeadModel>(architecture.as<Gpt2Spec>(), run, builder);
}

void gpt2_to_megatron(const Architecture& architecture, MegatronConfig& config) {
  const auto& spec = architecture.as<Gpt2Spec>();
  config.num_layers = spec.n_layer;
  config.hidden_size = spec.n_embd;
  config.ffn_hidden_size = spec.n_inner;
  config.num_attention_heads = config.num_query_groups = spec.n_head;
  config.kv_channels = spec.n_embd / spec.n_head;
  config.padded_vocab_size = spec.vocab_size;
  config.max_position_embeddings = spec.n_positions;
  config.swiglu = config.rms_norm = config.rotary = false;
  config.bias_linear = true;
  config.shares_embeddings = spec.tie_word_embeddings;
  config.hidden_dropout = spec.resid_pdrop;
  config.attention_dropout = spec.attn_pdrop;
}

}  // namespace memcalc
