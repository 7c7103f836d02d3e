// The towers of Qwen2-VL, Qwen2.5-VL and Qwen3-VL.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/families/qwen2_vl/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

/// What a size of images decides.
struct ImageGrid {
  std::int64_t height = 0, width = 0;  // patches
  std::int64_t merge = 0;              // so many a side become one token

  [[nodiscard]] std::int64_t patches() const { return height * width; }
  [[nodiscard]] std::int64_t tokens() const { return patches() / (merge * merge); }
  /// Patches of each window of `side` tokens that holds any, in its order.
  [[nodiscard]] std::vector<std::int64_t> windows(std::int64_t side) const {
    std::vector<std::int64_t> sizes;
    const std::int64_t rows = height / merge, columns = width / merge;
    for (std::int64_t row = 0; row < rows; row += side) {
      for (std::int64_t column = 0; column < columns; column += side) {
        sizes.push_back(std::min(side, rows - row) * std::min(side, columns - column) * merge * merge);
      }
    }
    return sizes;
  }
  /// get_vision_window_index counts empty windows, too: the last row and column are padded in any case.
  [[nodiscard]] std::int64_t counted_windows(std::int64_t side) const {
    return (height / merge / side + 1) * (width / merge / side + 1);
  }
};

/// An RMS norm or a layer norm.
using QwenVisionNorm = std::function<Tensor(const Tensor&)>;

/// VisionAttention, Qwen2_5_VLVisionAttention, Qwen3VLVisionAttention
struct QwenVisionAttention {
  Linear qkv, proj;
  std::int64_t num_heads;
  AttentionOptions options;

  QwenVisionAttention(ModuleBuilder& b, const QwenVisionParts& parts, const RunSpec& run);
  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const Tensor& cu_seqlens,
                               const std::vector<std::int64_t>& pieces, const Tensor& cos_of_places,
                               const Tensor& sin_of_places) const;
};

/// VisionMlp of Qwen2-VL, Qwen3VLVisionMLP
struct QwenVisionMlp {
  Linear fc1, fc2;
  std::string act;

  QwenVisionMlp(ModuleBuilder& b, const QwenVisionParts& parts);
  [[nodiscard]] Tensor forward(const Tensor& x) const;
};

/// Qwen2VLVisionBlock, Qwen2_5_VLVisionBlock, Qwen3VLVisionBlock
struct QwenVisionBlock {
  QwenVisionNorm norm1, norm2;
  QwenVisionAttention attn;
  std::optional<GatedMlp> gated_mlp;
  std::optional<QwenVisionMlp> mlp;

  QwenVisionBlock(ModuleBuilder& b, const QwenVisionParts& parts, const RunSpec& run);
  [[nodiscard]] Tensor forward(const Tensor& input, const Tensor& cu_seqlens, const std::vector<std::int64_t>& pieces,
                               const Tensor& cos, const Tensor& sin) const;
};

/// Qwen3VLVisionPatchMerger; `behind`: its norm is of whole tokens (use_postshuffle_norm).
struct QwenPatchMerger {
  LayerNorm norm;
  Linear linear_fc1, linear_fc2;
  std::int64_t hidden_size = 0;
  bool behind = false;

  QwenPatchMerger() = default;
  QwenPatchMerger(ModuleBuilder& b, const QwenVisionParts& parts, bool behind);
  [[nodiscard]] Tensor forward(const Tensor& x) const;
};

/// Qwen2VisionTransformerPretrainedModel, Qwen2_5_VisionTransformerPretrainedModel, Qwen3VLVisionModel
class QwenVisionTower {
 public:
  /// BaseModelOutputWithPooling, with deepstack_features.
  struct Output {
    Tensor last_hidden_state, pooler_output;
    std::vector<Tensor> deepstack_features;
  };

  QwenVisionTower(ModuleBuilder& b, const QwenVisionParts& parts, const RunSpec& run);
  [[nodiscard]] DType dtype() const { return patch_weight_.dtype(); }
  [[nodiscard]] Output forward(const Tensor& pixels, const Tensor& grid_thw, const ImageGrid& grid) const;

 private:
  /// cu_seqlens, and what stands in it.
  struct Lengths {
    Tensor ends;                        // int32
    std::vector<std::int64_t> lengths;  // of each piece that attends to itself
  };

  [[nodiscard]] Tensor position_ids(const Tensor& grid_thw, const ImageGrid& grid) const;
  [[nodiscard]] Lengths whole_images(const Tensor& grid_thw, const ImageGrid& grid) const;
  [[nodiscard]] Lengths windows(const Tensor& grid_thw, const ImageGrid& grid) const;
  /// get_vision_interpolation_indices_and_weights: [patches, 4] each.
  [[nodiscard]] std::pair<Tensor, Tensor> interpolation(const Tensor& grid_thw, const ImageGrid& grid) const;
  [[nodiscard]] Tensor patch_embed(const Tensor& pixels) const;
  [[nodiscard]] RotaryPositions rotary_pos_emb(const Tensor& position_ids) const;
  [[nodiscard]] Tensor permuted(const Tensor& x, const Tensor& window_index) const;
  [[nodiscard]] Tensor merger(const Tensor& x) const;

  QwenVisionParts parts_;
  RunSpec run_;
  bool patches_require_grad_;  // enable_input_require_grads: the tower's input embeddings
  Tensor patch_weight_, patch_bias_;
  Embedding pos_embed_;  // Qwen3-VL
  RotaryEmbedding rotary_pos_emb_;
  std::vector<QwenVisionBlock> blocks_;
  QwenVisionNorm ln_q_;
  Linear mlp_0_, mlp_2_;
  QwenPatchMerger merger_;                          // Qwen3-VL
  std::vector<QwenPatchMerger> deepstack_mergers_;  // Qwen3-VL
};

}  // namespace memcalc
