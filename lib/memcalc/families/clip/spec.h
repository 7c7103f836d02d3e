// CLIP: transformers models/clip.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/spec/family.h"

namespace memcalc {

/// One of CLIP's encoders: a norm before each half, no dropout but of the attention.
struct ClipTower {
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t intermediate_size = 0;
  std::string hidden_act;
  double attention_dropout = 0;
  bool siglip = false;  // whose layers register norms before what they feed, and take heads apart at once
};

/// A tower that looks at images: CLIP's, or SigLIP's, which has no class token and no norm before its layers.
struct ImageTowerSpec {
  bool siglip = false;
  ClipTower tower;
  std::int64_t image_size = 0;
  std::int64_t patch_size = 0;
  std::int64_t num_channels = 3;

  [[nodiscard]] std::int64_t patches() const { return (image_size / patch_size) * (image_size / patch_size); }
};

class HfReader;

/// CLIP (models/clip): images and captions, projected into one space.
struct ClipSpec {
  ClipTower text, vision;
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t image_size = 0;
  std::int64_t patch_size = 0;
  std::int64_t num_channels = 3;
  std::int64_t projection_dim = 0;
  bool pools_at_highest_id = false;  // text eos_token_id 2, as configurations before transformers 4.31 have it

  [[nodiscard]] std::int64_t position_limit() const { return max_position_embeddings; }
};

BuildFamily build_clip;

namespace family {
/// clip_vision_model or siglip_vision_model; `config`: vision_config. `fallback`: the model_type where it has none.
[[nodiscard]] ImageTowerSpec image_tower(HfReader& config, std::string_view fallback);

extern const Family kClip;
}  // namespace family

}  // namespace memcalc
