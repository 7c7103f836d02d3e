// Ministral 3 and Mistral 3: transformers models/ministral3, models/mistral3, models/pixtral.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

struct DecoderPlan;

/// Ministral 3 and Devstral 2 (models/ministral3): Mistral whose queries are scaled by their position.
struct Ministral3Spec : RotaryDecoderSpec {};

/// Pixtral's tower (models/pixtral): images of any size, positions of rows and columns.
struct PixtralTowerSpec {
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_channels = 3;
  std::int64_t patch_size = 0;
  std::string hidden_act;
  double attention_dropout = 0;
};

/// Mistral 3 (models/mistral3): Pixtral's tower, of whose patches squares are joined, and an MLP.
struct Mistral3Parts {
  PixtralTowerSpec tower;
  std::int64_t spatial_merge_size = 0;
  std::string projector_act;
  bool projector_bias = false;

  [[nodiscard]] std::int64_t step() const { return tower.patch_size * spatial_merge_size; }
};

class HfReader;

BuildFamily build_ministral3;
BuildFamily build_mistral3;
/// It refers to both. A model of images and text builds its text model by it, too.
[[nodiscard]] DecoderPlan ministral3_plan(const Architecture& text, const RunSpec& run);

namespace family {
extern const Family kMinistral3, kMistral3;
}  // namespace family

}  // namespace memcalc
