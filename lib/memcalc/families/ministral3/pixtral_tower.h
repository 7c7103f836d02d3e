// Pixtral's tower: transformers models/pixtral/modeling_pixtral.py, PixtralVisionModel. All images of a batch are one
// sequence, whose patches see those of their own image by a mask of numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/families/ministral3/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/models/vision.h"

namespace memcalc {

/// PixtralAttentionLayer
struct PixtralLayer {
  RmsNorm attention_norm;
  GatedMlp feed_forward;
  Linear k_proj, v_proj, q_proj, o_proj;
  RmsNorm ffn_norm;
  std::int64_t num_heads = 0;
  AttentionOptions options;

  PixtralLayer(ModuleBuilder& b, const PixtralTowerSpec& spec, const RunSpec& run);
  [[nodiscard]] Tensor forward(const Tensor& input, const Tensor& mask, const Tensor& cos, const Tensor& sin) const;

 private:
  [[nodiscard]] AttentionResult attention(const Tensor& hidden_states, const Tensor& mask, const Tensor& cos,
                                          const Tensor& sin) const;
};

class PixtralTower {
 public:
  PixtralTower(ModuleBuilder& b, const PixtralTowerSpec& spec, const RunSpec& run);

  /// hidden_states: what enters each layer, and the last one's result. `sizes`: [images, 2], of images that are as
  /// large as the pixels.
  [[nodiscard]] std::vector<Tensor> forward(const Tensor& pixels, const Tensor& sizes) const;

 private:
  /// position_ids: [patches, 2], and the last image's rows and columns, which the variables of its loop still hold.
  struct Places {
    Tensor position_ids, hpos_ids, wpos_ids;
  };

  [[nodiscard]] Tensor patch_conv(const Tensor& pixels) const;
  [[nodiscard]] static Places position_ids(Tape& tape, std::int64_t images, std::int64_t height, std::int64_t width);
  [[nodiscard]] RotaryPositions positions(const Tensor& x, const Tensor& position_ids) const;

  PixtralTowerSpec spec_;
  RunSpec run_;
  bool patches_require_grad_;  // enable_input_require_grads: the tower's input embeddings
  Conv2d patch_conv_;
  RmsNorm ln_pre_;
  std::vector<PixtralLayer> layers_;
  RotaryEmbedding patch_positional_embedding_;
};

/// image_size[i] // patch_size of an image: a scalar on the card.
[[nodiscard]] Tensor side_of_image(const Tensor& sizes);

}  // namespace memcalc
