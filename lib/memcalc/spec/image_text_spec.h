// ImageTextSpec: a model of images and text. A vision tower and a projector make vectors of the images, which take the
// places of image tokens in the embeddings of a decoder's sequence. Covered by tests/measured/image_text_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

struct ImageSize {
  std::int64_t height = 0, width = 0;  // pixels
};

/// The sizes that it inherits are the text model's, as rules, the planner and reports ask for them; `text` is built
/// with its own, and with num_hidden_layers and tie_word_embeddings as they stand here.
struct ImageTextSpec : RotaryDecoderSpec {
  std::vector<bool> sliding_layers;  // of the text model
  ExpertsSpec experts;               // likewise; none: 0
  Architecture text;                 // of the text model's family
  Architecture parts;                // tower and projector: the family's own struct
  /// Of each sequence; nothing: the text model alone, as its own ...ForCausalLM. What a processor makes of a data set,
  /// kept here because the model's inputs follow from it.
  std::optional<std::int64_t> images = 1;
  std::int64_t image_size = 0;              // pixels a side where nothing is said
  std::optional<std::int64_t> image_width;  // where it is not the height
  std::int64_t side_multiple = 0;           // sides are multiples of it; 0: image_size, and no other
  /// Tokens of a sequence that one image takes, without those that a processor sets around it.
  std::int64_t (*places_of_image)(const Architecture& parts, const ImageSize& image) = nullptr;

  [[nodiscard]] ImageSize size_of_image(std::int64_t height) const { return {height, image_width.value_or(height)}; }
  [[nodiscard]] std::int64_t places(std::int64_t height) const {
    return images.value_or(0) * places_of_image(parts, size_of_image(height));
  }
};

/// Null: another kind of model.
[[nodiscard]] inline const ImageTextSpec* image_text_of(const ModelSpec& model) {
  return model.architecture.get_if<ImageTextSpec>();
}

/// Whether it is the model with its tower, not its text model alone.
[[nodiscard]] inline bool is_image_text(const ModelSpec& model) {
  const ImageTextSpec* const spec = image_text_of(model);
  return spec != nullptr && spec->images.has_value();
}

/// Whether images are a part of its sequences.
[[nodiscard]] inline bool shows_images(const ModelSpec& model) {
  const ImageTextSpec* const spec = image_text_of(model);
  return spec != nullptr && spec->images.value_or(0) > 0;
}

/// Whether its training in the Trainer makes a cache of keys and values, which a checkpoint's switches off.
[[nodiscard]] inline bool caches_in_trainer(const ImageTextSpec& spec, const RunSpec& run) {
  return spec.images.has_value() && run.uses_trainer() && run.checkpointing() == Checkpointing::kNone;
}

/// The spec of a model around this text model.
template <typename Text>
[[nodiscard]] ImageTextSpec around_text(const Architecture& text) {
  const auto& sizes = text.as<Text>();
  ImageTextSpec spec;
  static_cast<RotaryDecoderSpec&>(spec) = sizes;
  if constexpr (requires { sizes.sliding_layers; }) spec.sliding_layers = sizes.sliding_layers;
  if constexpr (requires { sizes.experts; }) spec.experts = sizes.experts;
  spec.text = text;
  return spec;
}

}  // namespace memcalc
