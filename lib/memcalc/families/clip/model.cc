// CLIP: transformers models/clip/modeling_clip.py, CLIPModel with return_loss.
// MIRRORS(transformers, "models/clip/modeling_clip.py", "5.17.0")
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/families/clip/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/vision.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct SelfAttention {
  Linear k_proj, v_proj, q_proj, out_proj;
  std::int64_t head_dim;
  AttentionOptions options;

  SelfAttention(ModuleBuilder& b, const ClipTower& tower, const AttentionOptions& options)
      : k_proj(b, "k_proj", tower.hidden_size, tower.hidden_size),
        v_proj(b, "v_proj", tower.hidden_size, tower.hidden_size),
        q_proj(b, "q_proj", tower.hidden_size, tower.hidden_size),
        out_proj(b, "out_proj", tower.hidden_size, tower.hidden_size),
        head_dim(tower.hidden_size / tower.num_attention_heads),
        options(options) {}

  [[nodiscard]] Tensor heads(const Tensor& projected) const {
    return transpose(view(projected, {projected.size(0), projected.size(1), -1, head_dim}), 1, 2);
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const Tensor& mask) const {
    Tensor queries = q_proj(hidden_states);
    Tensor keys = k_proj(hidden_states);
    Tensor values = v_proj(hidden_states);
    queries = heads(queries);
    keys = heads(keys);
    values = heads(values);
    AttentionResult result = attention_interface(queries, keys, values, mask, options);
    result.output = reshape(result.output, hidden_states.shape());
    result.output = out_proj(result.output);
    drop(queries, keys, values);
    return result;
  }
};

struct EncoderLayer {
  SelfAttention self_attn;
  LayerNorm layer_norm1;
  Linear fc1, fc2;
  LayerNorm layer_norm2;
  std::string hidden_act;

  EncoderLayer(ModuleBuilder& b, const ClipTower& tower, const AttentionOptions& options)
      : self_attn(b.scope("self_attn", [&] { return SelfAttention(b, tower, options); })),
        layer_norm1(b, "layer_norm1", tower.hidden_size),
        fc1(b, "mlp.fc1", tower.hidden_size, tower.intermediate_size),
        fc2(b, "mlp.fc2", tower.intermediate_size, tower.hidden_size),
        layer_norm2(b, "layer_norm2", tower.hidden_size),
        hidden_act(tower.hidden_act) {}

  [[nodiscard]] Tensor mlp(const Tensor& x) const {
    Tensor hidden_states = fc1(x);
    hidden_states = activation_function(hidden_act, hidden_states);
    hidden_states = fc2(hidden_states);
    return hidden_states;
  }

  [[nodiscard]] Tensor forward(const Tensor& input, const Tensor& mask) const {
    Tensor residual = input;
    Tensor hidden_states = layer_norm1(input);
    AttentionResult attended = self_attn.forward(hidden_states, mask);
    hidden_states = std::move(attended.output);
    hidden_states = residual + hidden_states;
    residual = hidden_states;
    hidden_states = layer_norm2(hidden_states);
    hidden_states = mlp(hidden_states);
    hidden_states = residual + hidden_states;
    drop(residual, attended.weights);
    return hidden_states;
  }
};

/// CLIPEncoder
struct Encoder {
  std::vector<EncoderLayer> layers;

  Encoder(ModuleBuilder& b, const RunSpec& run, const ClipTower& tower, bool causal) {
    check_activation_function(tower.hidden_act);
    const AttentionOptions options{.implementation = run.attention,
                                   .dropout = dropout_probability(run, tower.attention_dropout),
                                   .causal = causal,
                                   .softmax_in_float32 = true};
    for (std::int64_t i = 0; i < tower.num_hidden_layers; ++i) {
      layers.push_back(b.scope("encoder.layers." + std::to_string(i), [&] { return EncoderLayer(b, tower, options); }));
    }
  }

  [[nodiscard]] Tensor forward(const RunSpec& run, Tensor hidden_states, const Tensor& mask) const {
    for (const EncoderLayer& layer : layers) {
      hidden_states = checkpointed(run, {hidden_states, mask}, {},
                                   [&layer](const KeptTensors& kept) { return layer.forward(kept[0], kept[1]); });
    }
    return hidden_states;
  }
};

/// BaseModelOutputWithPooling
struct Pooled {
  Tensor last_hidden_state, pooler_output;
};

struct TextModel {
  Embedding token_embedding, position_embedding;
  Tensor position_ids;
  std::vector<Encoder> encoder;  // one
  LayerNorm final_layer_norm;
  bool pools_at_highest_id;

  TextModel(ModuleBuilder& b, const RunSpec& run, const ClipSpec& spec)
      : token_embedding(b, "embeddings.token_embedding", spec.vocab_size, spec.text.hidden_size),
        position_embedding(b, "embeddings.position_embedding", spec.max_position_embeddings, spec.text.hidden_size),
        position_ids(b.buffer({1, spec.max_position_embeddings}, DType::kInt64)),
        pools_at_highest_id(spec.pools_at_highest_id) {
    encoder.emplace_back(b, run, spec.text, true);
    final_layer_norm = LayerNorm(b, "final_layer_norm", spec.text.hidden_size);
    no_grad::arange(b.tape, position_ids.elements()).reset();  // _init_weights makes them once more
  }

  /// The place of each sequence's end token.
  [[nodiscard]] Tensor ends(const Tensor& input_ids) const {
    Tensor ids = no_grad::to(input_ids, DType::kInt32);
    if (pools_at_highest_id) return argmax_last(std::move(ids));
    return argmax_last(no_grad::to(no_grad::equal(std::move(ids)), DType::kInt32));
  }

  [[nodiscard]] Pooled forward(const RunSpec& run, const Batch& batch) const {
    Tensor hidden_states;
    {
      const Tensor ids = slice(position_ids, 1, 0, batch.input_ids.size(1));
      Tensor inputs_embeds = token_embedding(batch.input_ids);
      Tensor position_embeddings = position_embedding(ids);
      hidden_states = inputs_embeds + position_embeddings;
      drop(inputs_embeds, position_embeddings);
    }
    constexpr bool kNoPositions = true;  // none are passed, so nobody looks for packed sequences
    const bool always = hidden_states.tape().behaviors.clip_text_mask;
    Tensor mask = always ? create_4d_causal_mask(hidden_states, batch)
                         : create_causal_mask(run, hidden_states, batch, PastTokens(kNoPositions));
    Pooled output;
    output.last_hidden_state = encoder[0].forward(run, hidden_states, mask);
    output.last_hidden_state = final_layer_norm(output.last_hidden_state);
    const Tensor rows = no_grad::arange(batch.input_ids.tape(), batch.input_ids.size(0));
    output.pooler_output = index_pairs(output.last_hidden_state, rows, ends(batch.input_ids));
    drop(mask, hidden_states);
    return output;
  }
};

struct VisionModel {
  Tensor class_embedding;
  Conv2d patch_embedding;
  Embedding position_embedding;
  Tensor position_ids;
  LayerNorm pre_layrnorm;
  std::vector<Encoder> encoder;  // one
  LayerNorm post_layernorm;

  VisionModel(ModuleBuilder& b, const RunSpec& run, const ClipSpec& spec)
      : class_embedding(b.parameter("embeddings.class_embedding", {spec.vision.hidden_size})),
        patch_embedding(b, "embeddings.patch_embedding", spec.num_channels, spec.vision.hidden_size, spec.patch_size,
                        {.stride = spec.patch_size}) {
    const std::int64_t side = spec.image_size / spec.patch_size;
    position_embedding = Embedding(b, "embeddings.position_embedding", side * side + 1, spec.vision.hidden_size);
    position_ids = b.buffer({1, side * side + 1}, DType::kInt64);
    pre_layrnorm = LayerNorm(b, "pre_layrnorm", spec.vision.hidden_size);
    encoder.emplace_back(b, run, spec.vision, false);
    post_layernorm = LayerNorm(b, "post_layernorm", spec.vision.hidden_size);
    no_grad::arange(b.tape, position_ids.elements()).reset();  // _init_weights makes them once more
  }

  [[nodiscard]] Tensor embeddings(const Tensor& pixel_values) const {
    const std::int64_t batch = pixel_values.size(0);
    Tensor patch_embeds = patch_embedding(to_dtype(pixel_values, patch_embedding.weight.dtype()));
    patch_embeds = transpose(view(patch_embeds, {batch, patch_embeds.size(1), -1}), 1, 2);
    const Tensor class_embeds = expand(class_embedding, {batch, 1, -1});
    Tensor embeddings = cat(class_embeds, patch_embeds, 1);
    embeddings = embeddings + position_embedding(position_ids);
    return embeddings;
  }

  [[nodiscard]] Pooled forward(const RunSpec& run, const Tensor& pixel_values) const {
    Tensor hidden_states = embeddings(pixel_values);
    hidden_states = pre_layrnorm(hidden_states);
    Pooled output;
    output.last_hidden_state = encoder[0].forward(run, hidden_states, {});
    output.pooler_output = open_slices(select(open_slices(output.last_hidden_state, {0}), 1), {1});
    output.pooler_output = post_layernorm(output.pooler_output);
    hidden_states.reset();
    return output;
  }
};

/// x / _get_vector_norm(x)
Tensor normalized(const Tensor& x) {
  Tensor norm;
  {
    const Tensor squares = power(x);
    const Tensor sum = sum_over(squares, -1, true);
    norm = power(sum);
  }
  return divide_both(x, norm);
}

Tensor contrastive_loss(const Tensor& logits) {
  return cross_entropy(logits, no_grad::arange(logits.tape(), logits.size(0)));
}

class ClipModel : public Model {
 public:
  ClipModel(const ClipSpec& spec, const RunSpec& run, ModuleBuilder& b) : run_(run) {
    b.scope("text_model", [&] {
      text_model_.emplace_back(b, run, spec);
      return 0;
    });
    b.scope("vision_model", [&] {
      vision_model_.emplace_back(b, run, spec);
      return 0;
    });
    visual_projection_ = Linear(b, "visual_projection", spec.vision.hidden_size, spec.projection_dim, false);
    text_projection_ = Linear(b, "text_projection", spec.text.hidden_size, spec.projection_dim, false);
    logit_scale_ = b.parameter_before("logit_scale", {}, b.parameters.front().name);
  }

  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    ModelOutput output;
    Pooled vision_outputs = vision_model_[0].forward(run_, batch.pixel_values);
    vision_outputs.pooler_output = visual_projection_(vision_outputs.pooler_output);
    Pooled text_outputs = text_model_[0].forward(run_, batch);
    text_outputs.pooler_output = text_projection_(text_outputs.pooler_output);
    Tensor image_embeds = normalized(vision_outputs.pooler_output);
    Tensor text_embeds = normalized(text_outputs.pooler_output);
    output.logits = linear(text_embeds, image_embeds, {});  // text_embeds @ image_embeds.t()
    output.logits = output.logits * exponential(logit_scale_);
    {
      const Tensor caption_loss = contrastive_loss(output.logits);
      const Tensor image_loss = contrastive_loss(transpose(output.logits, 0, 1));
      output.loss = divide_scalar(caption_loss + image_loss);
    }
    drop(output.logits, text_embeds, image_embeds, text_outputs.last_hidden_state, text_outputs.pooler_output,
         vision_outputs.last_hidden_state, vision_outputs.pooler_output);
    return output;
  }

 private:
  RunSpec run_;
  Tensor logit_scale_;
  std::vector<TextModel> text_model_;      // one
  std::vector<VisionModel> vision_model_;  // one
  Linear visual_projection_, text_projection_;
};

}  // namespace

std::unique_ptr<Model> build_clip(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<ClipModel>(architecture.as<ClipSpec>(), run, builder);
}

}  // namespace memcalc
