// Gemma 1 to 3: transformers models/gemma, models/gemma2, models/gemma3.
#pragma once

#include <vector>

#include "memcalc/families/clip/spec.h"
#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

struct DecoderPlan;

/// Gemma 1 (models/gemma): scaled embeddings, norms that multiply by 1 + weight.
struct GemmaSpec : RotaryDecoderSpec {};

/// Gemma 2 (models/gemma2): four norms a layer, soft caps, local and global layers in turn.
struct Gemma2Spec : RotaryDecoderSpec {
  std::vector<bool> sliding_layers;
  bool attention_softcap = true;  // attn_logit_softcapping: eager attention only
  bool final_softcap = true;      // final_logit_softcapping
};

/// Gemma 3's text model (models/gemma3): four norms, normalised query and key, rotary positions of two kinds.
struct Gemma3Spec : RotaryDecoderSpec {
  std::vector<bool> sliding_layers;
  bool final_softcap = false;
};

/// Gemma 3 with images (models/gemma3): SigLIP's tower, whose patches are averaged, and a matrix.
struct Gemma3VisionParts {
  ImageTowerSpec tower;
  std::int64_t mm_tokens_per_image = 0;

  [[nodiscard]] std::int64_t patches_per_side() const { return tower.image_size / tower.patch_size; }
  [[nodiscard]] std::int64_t tokens_per_side() const {
    std::int64_t side = 1;
    while ((side + 1) * (side + 1) <= mm_tokens_per_image) ++side;
    return side;
  }
};

/// PaliGemma (models/paligemma): SigLIP's tower and a linear layer around Gemma or Gemma 2.
struct PaliGemmaParts {
  ImageTowerSpec tower;
  std::int64_t projection_dim = 0;
};

BuildFamily build_gemma;
BuildFamily build_gemma2;
BuildFamily build_gemma3;
BuildFamily build_gemma3_vision;
BuildFamily build_paligemma;
/// It refers to both. A model of images and text builds its text model by it, too.
[[nodiscard]] DecoderPlan gemma_plan(const Architecture& text, const RunSpec& run);
[[nodiscard]] DecoderPlan gemma2_plan(const Architecture& text, const RunSpec& run);
[[nodiscard]] DecoderPlan gemma3_plan(const Architecture& text, const RunSpec& run);

namespace family {
extern const Family kGemma, kGemma2, kGemma3, kGemma3Text, kPaliGemma;
}  // namespace family

}  // namespace memcalc
