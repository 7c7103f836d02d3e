// What a model of images and text has around its decoder (models/rotary_decoder.h): a tower that looks at the images, a
// projector, and the forward pass that puts what they make into the embeddings. A family derives from ImageParts.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/models/rotary_decoder.h"
#include "memcalc/spec/image_text_spec.h"

namespace memcalc {

/// What the text model is called with, beside the batch's mask and the cache.
struct TextInputs {
  Tensor inputs_embeds;
  Tensor position_ids;  // undefined: the text model makes them
  /// A dict of masks that was made before: full, sliding. Absent: the text model makes its own.
  std::optional<std::array<Tensor, 2>> masks;
  std::vector<Tensor> features_of_layers;  // added to the places of images behind the first layers (Qwen3-VL)
  Tensor image_places;                     // where these are
  bool holds_layer_outputs = false;  // a variable of its own has each layer's output until the next one's is there
};

/// What tells places of images from text in the batch, which generate() makes longer with each token.
struct GrowingTypes {
  std::optional<std::size_t> place{};  // among Batch::others; none: there is no such input
  bool repeats_last = false;           // token_type_ids: by the last one; mm_token_type_ids: by zeros
  bool handed_on = true;               // token_type_ids to the forward passes of later tokens
};

class ImageParts {
 public:
  ImageParts(const ImageTextSpec& spec, const RunSpec& run) : run_(run), spec_(spec) {}
  virtual ~ImageParts() = default;
  ImageParts(const ImageParts&) = delete;
  ImageParts& operator=(const ImageParts&) = delete;

  using LookUp = std::function<Tensor(const Tensor& input_ids)>;
  using Decode = std::function<Tensor(TextInputs inputs)>;

  /// Tower and projector, which are registered before the text model, within the scope of the model around all.
  virtual void build(ModuleBuilder& b) = 0;
  /// That model's forward: the hidden states of the text model's last norm. What the output holds beside loss, logits
  /// and cache becomes the last of its `others`.
  [[nodiscard]] virtual Tensor forward(const Batch& batch, const LookUp& look_up, const Decode& decode,
                                       ModelOutput& output) const = 0;
  /// The batch as the processor makes it, in its order.
  [[nodiscard]] virtual std::vector<ModelInput> inputs() const = 0;

  /// generate(): the family's own _prepare_position_ids_for_generation, which has the text's.
  [[nodiscard]] virtual Tensor positions_for_generation(const Batch& /*batch*/, const Tensor& text_positions) const {
    return text_positions;
  }
  [[nodiscard]] const GrowingTypes& growing_types() const { return growing_types_; }
  [[nodiscard]] bool counts_from_one() const { return counts_from_one_; }

  [[nodiscard]] std::int64_t images() const { return spec_.images.value_or(0); }
  [[nodiscard]] bool accepts_loss_kwargs() const { return accepts_loss_kwargs_; }
  [[nodiscard]] bool hands_on_use_cache() const { return hands_on_use_cache_; }
  [[nodiscard]] std::string_view scope() const { return scope_; }

 protected:
  /// input_ids, `pixels` and what else the images need, the mask where the run passes one, labels where it has them.
  [[nodiscard]] std::vector<ModelInput> inputs_with(std::vector<ModelInput> of_images) const;
  [[nodiscard]] DType type_of_pixels() const;
  /// [batch · images, channels, height, width]
  [[nodiscard]] ModelInput pixel_values(std::int64_t channels) const;
  /// Whether the forward pass is given images: of generate() the first one alone.
  [[nodiscard]] bool sees_images(const Batch& batch) const { return images() > 0 && batch.pixel_values.defined(); }
  [[nodiscard]] ImageSize image() const { return spec_.size_of_image(run_.image_size); }
  [[nodiscard]] std::int64_t all_images() const { return run_.batch_size * images(); }

  RunSpec run_;
  ImageTextSpec spec_;
  bool accepts_loss_kwargs_ = true;
  GrowingTypes growing_types_;
  bool counts_from_one_ = false;     // prepare_inputs_for_generation adds one to the positions (PaliGemma)
  bool hands_on_use_cache_ = false;  // the whole model's config.use_cache to the text model, which else reads its own
  std::string_view scope_ = "language_model";  // of the text model, within the model around all
};

/// get_placeholder_mask: input_ids == image_token_id as [batch, tokens, 1], counted and compared with the features.
[[nodiscard]] Tensor placeholder_mask(const Tensor& input_ids);

/// torch_compilable_check(n_image_tokens * width == image_features.numel()), for which Python waits.
void check_places(const Tensor& count);

/// Qwen3-VL's _deepstack_process: x[places, :] plus the features, in a copy of x.
[[nodiscard]] Tensor with_features(const Tensor& x, const Tensor& places, const Tensor& features);

/// The plan of the text model of a model of images and text, which refers to `text` and `run`.
[[nodiscard]] DecoderPlan text_plan(const Architecture& text, const RunSpec& run);

using ChangePlan = std::function<void(const Architecture& text, DecoderPlan& plan)>;

/// ...ForConditionalGeneration of `parts` around the text model, or the text model alone where there are no images to
/// speak of. `change`: what differs in the text model's plan.
[[nodiscard]] std::unique_ptr<Model> build_image_text(const ImageTextSpec& spec, const RunSpec& run, ModuleBuilder& b,
                                                      std::shared_ptr<ImageParts> parts,
                                                      const ChangePlan& change = nullptr);

}  // namespace memcalc
