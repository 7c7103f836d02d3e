// CLIP: transformers models/clip/modeling_clip.py, CLIPModel with return_loss.
// MIRRORS(transformers, "models/clip/modeling_clip.py", "5.17.0")
#include <string>
#include <utility>
#include <vector>

#include "memcalc/families/clip/tower.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct TextModel {
  Embedding token_embedding, position_embedding;
  Tensor position_ids;
  std::vector<ClipEncoder> encoder;  // one
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

  [[nodiscard]] PooledStates forward(const RunSpec& run, const Batch& batch) const {
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
    PooledStates output;
    output.last_hidden_state = encoder[0].forward(run, hidden_states, mask);
    output.last_hidden_state = final_layer_norm(output.last_hidden_state);
    const Tensor rows = no_grad::arange(batch.input_ids.tape(), batch.input_ids.size(0));
    output.pooler_output = index_pairs(output.last_hidden_state, rows, ends(batch.input_ids));
    drop(mask, hidden_states);
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
      vision_model_.emplace_back(b, run,
                                 ImageTowerSpec{.tower = spec.vision,
                                                .image_size = spec.image_size,
                                                .patch_size = spec.patch_size,
                                                .num_channels = spec.num_channels});
      return 0;
    });
    visual_projection_ = Linear(b, "visual_projection", spec.vision.hidden_size, spec.projection_dim, false);
    text_projection_ = Linear(b, "text_projection", spec.text.hidden_size, spec.projection_dim, false);
    logit_scale_ = b.parameter_before("logit_scale", {}, b.parameters.front().name);
  }

  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    ModelOutput output;
    PooledStates vision_outputs = vision_model_[0].forward(run_, batch.pixel_values);
    const bool projects_last = logit_scale_.tape().behaviors.clip_projects_last;
    if (!projects_last) vision_outputs.pooler_output = visual_projection_(vision_outputs.pooler_output);
    PooledStates text_outputs = text_model_[0].forward(run_, batch);
    Tensor image_embeds, text_embeds;
    if (projects_last) {  // as variables: the towers' outputs live on in what the model returns
      image_embeds = visual_projection_(vision_outputs.pooler_output);
      text_embeds = text_projection_(text_outputs.pooler_output);
      image_embeds = normalized(image_embeds);
      text_embeds = normalized(text_embeds);
    } else {
      text_outputs.pooler_output = text_projection_(text_outputs.pooler_output);
      image_embeds = normalized(vision_outputs.pooler_output);
      text_embeds = normalized(text_outputs.pooler_output);
    }
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
  std::vector<TextModel> text_model_;          // one
  std::vector<ClipVisionModel> vision_model_;  // one
  Linear visual_projection_, text_projection_;
};

}  // namespace

std::unique_ptr<Model> build_clip(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<ClipModel>(architecture.as<ClipSpec>(), run, builder);
}

}  // namespace memcalc
