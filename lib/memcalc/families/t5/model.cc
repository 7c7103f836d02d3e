// T5, FLAN-T5, mT5: transformers models/t5/modeling_t5.py, models/mt5/modeling_mt5.py.
// MIRRORS(transformers, "models/mt5/modeling_mt5.py", "5.17.0")
// MIRRORS(transformers, "models/t5/modeling_t5.py", "5.17.0")
#include "memcalc/families/t5/spec.h"
#include "memcalc/models/encoder_decoder.h"
#include "memcalc/models/hooked_module.h"
#include "memcalc/models/megatron_config.h"
#include "memcalc/symbolic/capture.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// T5LayerNorm: an RMS norm whose sum of squares is float32.
struct T5LayerNorm {
  Tensor weight;
  T5LayerNorm() = default;
  T5LayerNorm(ModuleBuilder& b, std::string_view name, std::int64_t width)
      : weight(b.parameter(std::string(name) + ".weight", {width}, false)) {}

  [[nodiscard]] Tensor operator()(const Tensor& x) const {
    return hooked_module(*this, {&weight}, x, [this](const Tensor& hooked_x) { return normalize(hooked_x); });
  }

 private:
  [[nodiscard]] Tensor normalize(const Tensor& x) const {
    Tensor variance = mean_last(power(to_dtype(x, DType::kFloat32)));
    Tensor hidden_states = x * reciprocal_sqrt(add_scalar(variance));
    if (is_half(weight.dtype())) hidden_states = to_dtype(hidden_states, weight.dtype());
    Tensor result = weight * hidden_states;
    drop(hidden_states, variance);
    return result;
  }
};

/// T5DenseActDense and T5DenseGatedActDense, with T5LayerFF around them.
struct FeedForward {
  Linear wi, wi_1, wo;
  T5LayerNorm layer_norm;
  std::string activation;
  bool gated;
  double dropout_p;

  FeedForward(ModuleBuilder& b, const T5Spec& spec, double dropout_p)
      : wi(b, spec.is_gated_act ? "DenseReluDense.wi_0" : "DenseReluDense.wi", spec.d_model, spec.d_ff, false),
        wi_1(spec.is_gated_act ? Linear(b, "DenseReluDense.wi_1", spec.d_model, spec.d_ff, false) : Linear()),
        wo(b, "DenseReluDense.wo", spec.d_ff, spec.d_model, false),
        layer_norm(b, "layer_norm", spec.d_model),
        activation(spec.dense_act_fn),
        gated(spec.is_gated_act),
        dropout_p(dropout_p) {}

  [[nodiscard]] Tensor dense(const Tensor& x) const {
    Tensor hidden_states, hidden_gelu, hidden_linear;
    if (gated) {
      hidden_gelu = activation_function(activation, wi(x));
      hidden_linear = wi_1(x);
      hidden_states = hidden_gelu * hidden_linear;
    } else {
      hidden_states = wi(x);
      hidden_states = activation_function(activation, hidden_states);
    }
    hidden_states = dropout(hidden_states, dropout_p);
    hidden_states = to_dtype(hidden_states, wo.weight.dtype());  // under autocast up, and down again in the product
    Tensor result = wo(hidden_states);
    drop(hidden_states, hidden_gelu, hidden_linear);
    return result;
  }

  [[nodiscard]] Tensor forward(const Tensor& hidden_states) const {
    Tensor forwarded_states = layer_norm(hidden_states);
    forwarded_states = dense(forwarded_states);
    return hidden_states + dropout(forwarded_states, dropout_p);
  }
};

/// _relative_position_bucket: the locals of the function, in its order.
Tensor relative_position_bucket(const Tensor& distances, bool bidirectional) {
  Tensor relative_position, relative_buckets;
  if (bidirectional) {
    relative_buckets = no_grad::add(no_grad::multiply(no_grad::to(no_grad::greater(distances), DType::kInt64)));
    relative_position = no_grad::absolute(distances);
  } else {
    relative_position = no_grad::negate(no_grad::minimum(distances, no_grad::zeros_like(distances)));
  }
  Tensor is_small = no_grad::less(relative_position);
  Tensor large = no_grad::logarithm(no_grad::divide(no_grad::to(relative_position, DType::kFloat32)));
  large = no_grad::to(no_grad::multiply(no_grad::divide(std::move(large))), DType::kInt64);
  large = no_grad::add(std::move(large));
  large = no_grad::minimum(large, no_grad::full_like(large));
  Tensor chosen = no_grad::where(is_small, relative_position, large);
  if (!bidirectional) relative_buckets = no_grad::add(chosen);  // 0 + chosen; else in place
  chosen.reset();
  drop(relative_position, is_small, large);
  return relative_buckets;
}

/// cache_position[-1] + 1, before 5.5
Tensor tokens_so_far(Tape& tape) {
  Tensor cache_position;
  {
    const OnMetaDevice there(tape.memory);
    cache_position = no_grad::arange(tape, 1);
  }
  return no_grad::add(no_grad::select(cache_position, 0));
}

struct T5Attention {
  Linear q, k, v, o;
  Embedding relative_attention_bias;  // of buckets; the first layer of a stack
  T5LayerNorm layer_norm;
  bool bidirectional;
  bool checkpointing;
  std::int64_t heads, head_dim;
  double dropout_p;
  AttentionOptions options;

  struct Config {
    bool relative_bias, bidirectional, causal;
  };

  T5Attention(ModuleBuilder& b, std::string_view name, const T5Spec& spec, const RunSpec& run, const Config& config)
      : bidirectional(config.bidirectional),
        checkpointing(run.checkpointing() == Checkpointing::kFull),
        heads(spec.num_heads),
        head_dim(spec.d_kv),
        dropout_p(dropout_probability(run, spec.dropout_rate)),
        options{.implementation = run.attention, .dropout = dropout_p, .causal = config.causal} {
    const std::int64_t inner = spec.num_heads * spec.d_kv;
    b.scope(name, [&] {
      q = Linear(b, "q", spec.d_model, inner, false);
      k = Linear(b, "k", spec.d_model, inner, false);
      v = Linear(b, "v", spec.d_model, inner, false);
      o = Linear(b, "o", inner, spec.d_model, false);
      if (config.relative_bias) {  // its name holds "bias", so the Trainer does not decay it
        relative_attention_bias = Embedding(b, "relative_attention_bias", spec.relative_attention_num_buckets, heads);
        b.parameters.back().decays = false;
      }
      return 0;
    });
    layer_norm = T5LayerNorm(b, "layer_norm", spec.d_model);
  }

  [[nodiscard]] Tensor heads_of(const Linear& projection, const Tensor& states) const {
    return transpose(view(projection(states), {states.size(0), states.size(1), -1, head_dim}), 1, 2);
  }

  /// Before 5.5 the model's cache_position are the queries' places: nothing is asked for.
  [[nodiscard]] static Tensor places_of_queries(Tape& tape, std::int64_t queries) {
    if (!tape.behaviors.cache_positions) {
      return no_grad::add(no_grad::view(no_grad::arange(tape, queries), {queries, 1}));
    }
    const OnMetaDevice there(tape.memory);
    return no_grad::view(no_grad::arange(tape, queries), {queries, 1});
  }

  [[nodiscard]] Tensor compute_bias(std::int64_t queries, std::int64_t keys) const {
    Tape& tape = relative_attention_bias.weight.tape();
    Tensor context_position = places_of_queries(tape, queries);
    Tensor memory_position = no_grad::view(no_grad::arange(tape, keys), {1, keys});
    Tensor relative_position = no_grad::subtract(memory_position, context_position);
    Tensor bucket = relative_position_bucket(relative_position, bidirectional);
    Tensor values = relative_attention_bias(bucket);
    values = unsqueeze(transpose(transpose(values, 1, 2), 0, 1), 0);  // permute([2, 0, 1])
    drop(context_position, memory_position, relative_position, bucket);
    return values;
  }

  /// Cross attention has no positions. Under checkpointing the zeros are made to require a gradient.
  [[nodiscard]] Tensor zero_bias(const Tensor& query, std::int64_t keys) const {
    Tape& tape = query.tape();
    Tensor zeros = no_grad::zeros(tape, {1, heads, query.size(2), keys}, query.dtype());
    if (checkpointing) tape.autograd.require_gradient(zeros);
    return zeros;
  }

  [[nodiscard]] AttentionResult attend(const Tensor& hidden_states, const Tensor& mask, const Tensor& key_value_states,
                                       Tensor& position_bias, KeyValueCache* cache) const {
    Tensor query_states = heads_of(q, hidden_states);
    Tensor key_states, value_states;
    if (key_value_states.defined() && cache != nullptr && cache->is_filled()) {
      cache->read(key_states, value_states);
    } else {
      const Tensor& current_states = key_value_states.defined() ? key_value_states : hidden_states;
      key_states = heads_of(k, current_states);
      value_states = heads_of(v, current_states);
      if (cache != nullptr) cache->update(key_states, value_states);
    }
    if (!position_bias.defined()) {
      position_bias = relative_attention_bias.weight.defined() ? compute_bias(query_states.size(2), key_states.size(2))
                                                               : zero_bias(query_states, key_states.size(2));
    }
    AttentionResult result = attention_interface(query_states, key_states, value_states, mask, options, position_bias);
    result.output = reshape(result.output, {hidden_states.size(0), hidden_states.size(1), -1});
    result.output = o(result.output);
    drop(query_states, key_states, value_states);
    return result;
  }

  /// T5Attention before 5.15, which knew eager attention alone: the mask is added to the bias as the first layer makes
  /// it, and the bias to the scores in place.
  [[nodiscard]] AttentionResult attend_eagerly(const Tensor& hidden_states, const Tensor& mask,
                                               const Tensor& key_value_states, Tensor& position_bias,
                                               KeyValueCache* cache) const {
    Tensor query_states = heads_of(q, hidden_states);
    Tensor key_states, value_states;
    if (key_value_states.defined() && cache != nullptr && cache->is_filled()) {
      cache->read(key_states, value_states);
    } else {
      const Tensor& current_states = key_value_states.defined() ? key_value_states : hidden_states;
      key_states = heads_of(k, current_states);
      value_states = heads_of(v, current_states);
      if (cache != nullptr) cache->update(key_states, value_states);
    }
    Tensor scores = matmul(query_states, transpose(key_states, 2, 3));
    Tensor real_seq_length;
    if (!position_bias.defined()) {
      const bool by_cache_position = hidden_states.tape().behaviors.cache_positions;
      if (by_cache_position && !key_value_states.defined()) real_seq_length = tokens_so_far(hidden_states.tape());
      if (relative_attention_bias.weight.defined()) {
        position_bias = compute_bias(query_states.size(2), key_states.size(2));
        // position_bias[:, :, -seq_length:, :]
        if (by_cache_position) position_bias = open_slices(slice_whole(open_slices(position_bias, {0, 1}), 2), {3});
      } else {
        position_bias = zero_bias(query_states, key_states.size(2));
      }
      if (mask.defined()) position_bias = position_bias + mask;
    }
    scores = add_in_place(scores, position_bias);
    Tensor attn_weights = to_dtype(softmax(to_dtype(scores, DType::kFloat32)), scores.dtype());
    attn_weights = dropout(attn_weights, dropout_p);
    AttentionResult result;
    result.output = contiguous(transpose(matmul(attn_weights, value_states), 1, 2));
    result.output = view(result.output, {hidden_states.size(0), hidden_states.size(1), -1});
    result.output = o(result.output);
    drop(query_states, key_states, value_states, scores, real_seq_length, attn_weights);
    return result;
  }

  /// T5LayerSelfAttention, or with `key_value_states` T5LayerCrossAttention. `position_bias` is made where undefined.
  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const Tensor& mask, const Tensor& key_value_states,
                                        Tensor& position_bias, KeyValueCache* cache) const {
    Tensor normed_hidden_states = layer_norm(hidden_states);
    const bool is_eager = hidden_states.tape().behaviors.t5_attention == memcalc::T5Attention::kEager;
    AttentionResult result = is_eager
                                 ? attend_eagerly(normed_hidden_states, mask, key_value_states, position_bias, cache)
                                 : attend(normed_hidden_states, mask, key_value_states, position_bias, cache);
    if (key_value_states.defined()) {  // the sum has a variable of its own there
      Tensor attention_output = std::move(result.output);
      result.output = hidden_states + dropout(attention_output, dropout_p);
      drop(normed_hidden_states, attention_output);
    } else {
      result.output = hidden_states + dropout(result.output, dropout_p);
    }
    return result;
  }
};

/// "clamp inf values to enable fp16 training"
Tensor clamp_infinities(Tensor hidden_states) {
  if (hidden_states.dtype() != DType::kFloat16) return hidden_states;
  Tape& tape = hidden_states.tape();
  Tensor clamp_value;
  {
    const Tensor found = no_grad::any(no_grad::isinf(hidden_states));
    const Tensor smaller = no_grad::scalar(tape, DType::kFloat32);
    const Tensor larger = no_grad::scalar(tape, DType::kFloat32);
    clamp_value = no_grad::where(found, smaller, larger);
  }
  const Tensor lowest = no_grad::negate(clamp_value);
  return clamp(std::move(hidden_states), lowest, clamp_value);
}

struct BlockOutputs {
  Tensor position_bias, cross_position_bias;
};

struct T5Block {
  T5Attention self;
  std::vector<T5Attention> cross;  // of a decoder: one
  FeedForward feed_forward;

  T5Block(ModuleBuilder& b, const T5Spec& spec, const RunSpec& run, bool decoder, bool first)
      : self(b.scope("layer.0",
                     [&] {
                       return T5Attention(b, "SelfAttention", spec, run,
                                          {.relative_bias = first, .bidirectional = !decoder, .causal = decoder});
                     })),
        cross(decoder ? std::vector<T5Attention>{b.scope(
                            "layer.1", [&] { return T5Attention(b, "EncDecAttention", spec, run, {}); })}
                      : std::vector<T5Attention>()),
        feed_forward(b.scope(decoder ? "layer.2" : "layer.1",
                             [&] { return FeedForward(b, spec, dropout_probability(run, spec.dropout_rate)); })) {}

  /// kept: hidden states, mask, position bias, encoder's hidden states, its mask, cross position bias.
  [[nodiscard]] Tensor forward(const KeptTensors& kept, BlockOutputs& biases, EncoderDecoderCache* cache) const {
    biases.position_bias = kept[2];
    AttentionResult attention =
        self.forward(kept[0], kept[1], {}, biases.position_bias, cache != nullptr ? &cache->self_attention : nullptr);
    Tape& tape = kept[0].tape();
    // self_attention_outputs, cross_attention_outputs: tuples that live to the block's end, before 5.15.
    const bool keeps_tuples = tape.behaviors.t5_attention == memcalc::T5Attention::kEager;
    Tensor of_self, of_cross;
    if (keeps_tuples) of_self = attention.output;
    Tensor hidden_states = clamp_infinities(std::move(attention.output));
    if (!cross.empty()) {
      biases.cross_position_bias = kept[5];
      Tensor query_length = tape.behaviors.cache_positions ? tokens_so_far(tape) : Tensor();
      AttentionResult cross_attention =
          cross.front().forward(hidden_states, kept[4], kept[3], biases.cross_position_bias,
                                cache != nullptr ? &cache->cross_attention : nullptr);
      query_length.reset();
      hidden_states = std::move(cross_attention.output);
      if (keeps_tuples) of_cross = hidden_states;
      attention.weights = std::move(cross_attention.weights);
      hidden_states = clamp_infinities(std::move(hidden_states));
    }
    hidden_states = feed_forward.forward(hidden_states);
    hidden_states = clamp_infinities(std::move(hidden_states));
    attention.weights.reset();
    drop(of_self, of_cross);
    return hidden_states;
  }
};

/// What T5Stack.forward of transformers 4.57.6 makes for its masks and keeps to its end.
struct OldMasks {
  Tensor cache_position, ones, encoder_ones;

  void make(const Tensor& inputs_embeds, const Batch& batch, const Tensor& encoder_hidden_states, Tensor& mask,
            Tensor& encoder_mask) {
    Tape& tape = inputs_embeds.tape();
    const NoGrad no_grad(tape.modes);
    const std::int64_t sequences = inputs_embeds.size(0), tokens = inputs_embeds.size(1);
    const DType dtype = inputs_embeds.dtype();
    cache_position = no_grad::arange(tape, tokens);
    if (!encoder_hidden_states.defined()) {
      Tensor of_tokens = batch.attention_mask;
      if (!of_tokens.defined()) of_tokens = ones = no_grad::ones(tape, {sequences, tokens}, DType::kFloat32);
      mask = inverted(of_tokens, dtype);
      return;
    }
    ones = no_grad::ones(tape, {sequences, tokens}, DType::kFloat32);
    mask = causal(sequences, tokens, dtype);
    Tensor of_encoder = batch.attention_mask;
    if (!of_encoder.defined()) {
      const Shape shape{encoder_hidden_states.size(0), encoder_hidden_states.size(1)};
      of_encoder = encoder_ones = no_grad::ones(tape, shape, DType::kInt64);
    }
    encoder_mask = inverted(of_encoder, dtype);
  }

  void clear() { drop(ones, encoder_ones, cache_position); }

 private:
  /// (1.0 - mask[:, None, None, :].to(dtype)) * lowest
  [[nodiscard]] static Tensor inverted(const Tensor& mask, DType dtype) {
    const Tensor expanded = no_grad::to(no_grad::view(mask, {mask.size(0), 1, 1, mask.size(1)}), dtype);
    return no_grad::multiply(no_grad::subtract(expanded));
  }

  /// _prepare_4d_causal_attention_mask_with_cache_position
  [[nodiscard]] Tensor causal(std::int64_t sequences, std::int64_t tokens, DType dtype) const {
    Tape& tape = cache_position.tape();
    Tensor lower;
    {
      const Tensor whole = no_grad::full(tape, {tokens, tokens}, dtype);
      lower = no_grad::clone(whole);  // triu
    }
    {
      const Tensor range = no_grad::arange(tape, tokens);
      const Tensor later =
          no_grad::greater(no_grad::view(range, {1, tokens}), no_grad::view(cache_position, {tokens, 1}));
    }
    const Shape shape{sequences, 1, tokens, tokens};
    Tensor result = no_grad::clone(no_grad::expand(no_grad::view(lower, {1, 1, tokens, tokens}), shape));
    lower.reset();
    Tensor padding;
    {
      const Tensor sum = no_grad::add(result, no_grad::view(ones, {sequences, 1, 1, tokens}));
      padding = no_grad::equal(sum);
    }
    no_grad::masked_fill(result, padding).reset();
    return result;
  }
};

struct T5Stack {
  std::vector<T5Block> block;
  T5LayerNorm final_layer_norm;
  Tensor replaced_embedding;
  double dropout_p;

  T5Stack(ModuleBuilder& b, const T5Spec& spec, const RunSpec& run, const Tensor& shared, bool decoder)
      : replaced_embedding(replaced_by(b, shared)), dropout_p(dropout_probability(run, spec.dropout_rate)) {
    const std::int64_t layers = decoder ? spec.num_decoder_layers : spec.num_layers;
    for (std::int64_t i = 0; i < layers; ++i) {
      block.push_back(b.scope("block." + std::to_string(i), [&] { return T5Block(b, spec, run, decoder, i == 0); }));
    }
    final_layer_norm = T5LayerNorm(b, "final_layer_norm", spec.d_model);
  }

  /// `encoder_hidden_states` and `cache`: of a decoder.
  [[nodiscard]] Tensor forward(const RunSpec& run, const Embedding& embed_tokens, const Tensor& input_ids,
                               const Batch& batch, const Tensor& encoder_hidden_states,
                               EncoderDecoderCache* cache) const {
    Tensor inputs_embeds = embed_tokens(input_ids);
    Tensor attention_mask, encoder_extended_attention_mask;
    OldMasks made;
    if (inputs_embeds.tape().behaviors.t5_masks_of_ones) {
      made.make(inputs_embeds, batch, encoder_hidden_states, attention_mask, encoder_extended_attention_mask);
    } else if (encoder_hidden_states.defined()) {
      PastTokens past(cache != nullptr ? &cache->self_attention : nullptr);
      past.cached = true;  // no position ids are passed, so nobody looks for packed sequences either way
      attention_mask = create_causal_mask(run, inputs_embeds, unmasked(), past);
      encoder_extended_attention_mask = create_bidirectional_mask(run, inputs_embeds, batch, encoder_hidden_states);
    } else {
      attention_mask = create_bidirectional_mask(run, inputs_embeds, batch);
    }
    BlockOutputs biases;  // the first layer makes them, the others share them
    Tensor hidden_states = dropout(inputs_embeds, dropout_p);
    for (const T5Block& layer : block) {
      BlockOutputs* shared = &biases;
      const auto run_layer = [&layer, shared, cache](const KeptTensors& kept) {
        BlockOutputs made;
        Tensor result = layer.forward(kept, made, cache);
        if (!result.tape().moment.recomputing) *shared = std::move(made);
        return result;
      };
      hidden_states =
          checkpointed(run,
                       {hidden_states, attention_mask, biases.position_bias, encoder_hidden_states,
                        encoder_extended_attention_mask, biases.cross_position_bias},
                       {}, run_layer, Byproducts({&biases.position_bias, &biases.cross_position_bias}, cache));
    }
    hidden_states = final_layer_norm(hidden_states);
    hidden_states = dropout(hidden_states, dropout_p);
    made.clear();
    drop(attention_mask, inputs_embeds, encoder_extended_attention_mask, biases.position_bias,
         biases.cross_position_bias);
    return hidden_states;
  }
};

class T5ForConditionalGeneration : public Model {
 public:
  T5ForConditionalGeneration(const T5Spec& spec, const RunSpec& run, ModuleBuilder& b)
      : spec_(spec), run_(run), shared_(b, "shared", spec.vocab_size, spec.d_model) {
    check_activation_function(spec.dense_act_fn);
    is_encoder_decoder = true;
    encoder_.push_back(b.scope("encoder", [&] { return T5Stack(b, spec, run, shared_.weight, false); }));
    decoder_.push_back(b.scope("decoder", [&] { return T5Stack(b, spec, run, shared_.weight, true); }));
    const bool follows_config = spec.tied_by_transformers && !b.tape.behaviors.t5_ties_head;
    if (spec.tie_word_embeddings && !follows_config) {
      Tensor replaced = replaced_by(b, shared_.weight);
      lm_head_.weight = shared_.weight;
    } else {
      lm_head_ = Linear(b, "lm_head", spec.d_model, spec.vocab_size, false);
    }
    drop(encoder_[0].replaced_embedding, decoder_[0].replaced_embedding);
  }

  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    ModelOutput output;
    output.encoder_last_hidden_state = batch.encoder_outputs.defined() ? batch.encoder_outputs : encode(batch);
    Tensor decoder_input_ids = decoder_input_ids_of(batch);
    EncoderDecoderCache* const cache = decoder_cache(batch, output);
    record_copied_configurations(shared_.weight.tape(), cache, output, 2);
    // DynamicCache copies the configuration of a decoder that has an encoder (cache_utils.py, get_text_config), which
    // Dynamo does not trace: it compiles encoder, decoder and head each by itself
    // (tests/measured/compile_breaks.jsonl).
    GraphCapture* const broken = cache != nullptr ? shared_.weight.tape().modes.capture : nullptr;
    if (broken != nullptr) broken->break_graph(output.encoder_last_hidden_state);
    Tensor last_hidden_state =
        decoder_[0].forward(run_, shared_, decoder_input_ids, batch, output.encoder_last_hidden_state, cache);
    if (broken != nullptr) broken->break_graph(last_hidden_state);
    Tensor sequence_output = last_hidden_state;
    if (spec_.scale_decoder_outputs) sequence_output = multiply_scalar(sequence_output);
    output.logits = lm_head_(sequence_output);
    if (batch.labels.defined()) {
      output.loss = cross_entropy(view(output.logits, {-1, spec_.vocab_size}), view(batch.labels, {-1}));
    }
    drop(decoder_input_ids, last_hidden_state, sequence_output);
    return output;
  }

  [[nodiscard]] Tensor encode(const Batch& batch) override {
    return encoder_[0].forward(run_, shared_, batch.input_ids, batch, {}, nullptr);
  }

 private:
  // The Trainer sets config.use_cache = False, but the decoder has a copy of the configuration that was made before;
  // checkpointing switches that off in training alone.
  [[nodiscard]] EncoderDecoderCache* decoder_cache(const Batch& batch, ModelOutput& output) const {
    const bool recomputes = run_.checkpointing() != Checkpointing::kNone && shared_.weight.tape().modes.training;
    const bool trainer = run_.uses_trainer() && !recomputes;
    if (trainer && batch.past_key_values == nullptr) return &output.past_key_values;
    return cache_of(run_, batch, output);
  }

  T5Spec spec_;
  RunSpec run_;
  Embedding shared_;
  std::vector<T5Stack> encoder_, decoder_;  // one each
  Linear lm_head_;
};

}  // namespace

std::unique_ptr<Model> build_t5(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<T5ForConditionalGeneration>(architecture.as<T5Spec>(), run, builder);
}

/// Megatron-core's T5Model in these sizes, with Megatron's defaults: LayerNorm, biases, GELU, learned positions.
void t5_to_megatron(const Architecture& architecture, MegatronConfig& config) {
  const auto& spec = architecture.as<T5Spec>();
  config.build = build_megatron_t5;
  config.num_layers = spec.num_layers;
  config.decoder_layers = spec.num_decoder_layers;
  config.hidden_size = spec.d_model;
  config.ffn_hidden_size = spec.d_ff;
  config.num_attention_heads = config.num_query_groups = spec.num_heads;
  config.kv_channels = spec.d_kv;
  config.padded_vocab_size = spec.vocab_size;
  config.swiglu = config.rms_norm = config.rotary = false;
  config.bias_linear = true;
  config.shares_embeddings = spec.tie_word_embeddings;
  config.hidden_dropout = config.attention_dropout = spec.dropout_rate;
}

}  // namespace memcalc
