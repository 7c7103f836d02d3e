// Qwen2-VL, Qwen2.5-VL and Qwen3-VL: transformers models/qwen2_vl, models/qwen2_5_vl, models/qwen3_vl.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/spec/family.h"
#include "memcalc/spec/image_text_spec.h"

namespace memcalc {

enum class QwenVision : std::uint8_t {
  k2,
  k25,  // RMS norms, a gated MLP, attention within windows
  k3,   // learned positions beside the rotary ones; features of some layers go to the text model's first ones
};

/// The tower of Qwen2-VL, which sees images of any shape as patches of 14 or 16 pixels a side, and its merger.
struct QwenVisionParts {
  QwenVision kind = QwenVision::k2;
  std::int64_t depth = 0;
  std::int64_t hidden_size = 0;  // of its layers
  std::int64_t num_heads = 0;
  std::int64_t intermediate_size = 0;
  std::string hidden_act;
  std::int64_t in_channels = 3;
  std::int64_t patch_size = 0;
  std::int64_t temporal_patch_size = 0;
  std::int64_t spatial_merge_size = 0;         // so many patches a side become one token
  std::int64_t out_hidden_size = 0;            // the text model's
  std::int64_t window_size = 0;                // pixels a side
  std::vector<bool> full_attention;            // Qwen2.5-VL: of each layer
  std::int64_t num_position_embeddings = 0;    // Qwen3-VL: of a square
  std::vector<std::int64_t> deepstack_layers;  // Qwen3-VL: deepstack_visual_indexes

  [[nodiscard]] std::int64_t merged() const { return spatial_merge_size * spatial_merge_size; }
};

BuildFamily build_qwen2_vl;

namespace family {
extern const Family kQwen2Vl, kQwen25Vl, kQwen3Vl, kQwen3VlMoe;
}  // namespace family

}  // namespace memcalc
