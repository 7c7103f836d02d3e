// InternVL: transformers models/internvl.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/spec/family.h"
#include "memcalc/spec/image_text_spec.h"

namespace memcalc {

/// InternVL (models/internvl): InternViT, of whose patches squares are joined (pixel shuffle), and an MLP. A processor
/// makes tiles of an image: an image here is one of them.
struct InternVlParts {
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t intermediate_size = 0;
  std::string hidden_act;
  double hidden_dropout = 0, attention_dropout = 0, projection_dropout = 0;
  bool attention_bias = false;
  bool qk_norm = false;         // use_qk_norm
  bool rms_norm = false;        // norm_type
  bool mask_token = false;      // use_mask_token
  bool has_positions = true;    // use_absolute_position_embeddings
  bool last_norm = false;       // without use_mean_pooling
  std::int64_t image_size = 0;  // pixels a side
  std::int64_t patch_size = 0;
  std::int64_t num_channels = 3;
  std::int64_t merge = 2;  // 1 / downsample_ratio: patches a side that become one token
  std::string projector_act;

  [[nodiscard]] std::int64_t side() const { return image_size / patch_size; }
  [[nodiscard]] std::int64_t merged_width() const { return hidden_size * merge * merge; }
  [[nodiscard]] std::int64_t places() const { return (side() / merge) * (side() / merge); }
};

BuildFamily build_internvl;

namespace family {
extern const Family kInternVl;
}  // namespace family

}  // namespace memcalc
