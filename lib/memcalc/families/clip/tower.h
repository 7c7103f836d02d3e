// CLIP's encoder, which SigLIP's repeats, and the towers of both that look at images: transformers
// models/clip/modeling_clip.py, models/siglip/modeling_siglip.py.
#pragma once

#include <string>
#include <vector>

#include "memcalc/families/clip/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/vision.h"

namespace memcalc {

/// CLIPAttention
struct ClipAttention {
  Linear k_proj, v_proj, q_proj, out_proj;
  std::int64_t head_dim = 0;
  bool siglip = false;  // SiglipAttention
  AttentionOptions options;

  ClipAttention() = default;
  ClipAttention(ModuleBuilder& b, const ClipTower& tower, const AttentionOptions& options);
  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const Tensor& mask) const;

 private:
  [[nodiscard]] Tensor heads(const Tensor& projected) const;
};

/// CLIPEncoderLayer, SiglipEncoderLayer
struct ClipLayer {
  ClipAttention self_attn;
  LayerNorm layer_norm1;
  Linear fc1, fc2;
  LayerNorm layer_norm2;
  std::string hidden_act;

  ClipLayer(ModuleBuilder& b, const ClipTower& tower, const AttentionOptions& options);
  [[nodiscard]] Tensor forward(const Tensor& input, const Tensor& mask) const;

 private:
  [[nodiscard]] Tensor mlp(const Tensor& x) const;
};

/// CLIPEncoder
struct ClipEncoder {
  std::vector<ClipLayer> layers;
  double layer_python;  // TowerPython's, of each

  ClipEncoder(ModuleBuilder& b, const RunSpec& run, const ClipTower& tower, bool causal);
  /// `all`: gets what enters each layer and the last one's result, as output_hidden_states keeps them.
  [[nodiscard]] Tensor forward(const RunSpec& run, Tensor hidden_states, const Tensor& mask,
                               std::vector<Tensor>* all = nullptr) const;
};

/// BaseModelOutputWithPooling
struct PooledStates {
  Tensor last_hidden_state, pooler_output;
  std::vector<Tensor> hidden_states;  // where they are asked for
};

/// CLIPVisionModel, or SiglipVisionModel without its head.
class ClipVisionModel {
 public:
  ClipVisionModel(ModuleBuilder& b, const RunSpec& run, const ImageTowerSpec& spec);
  [[nodiscard]] PooledStates forward(const RunSpec& run, const Tensor& pixel_values, bool keeps_all = false) const;

 private:
  [[nodiscard]] Tensor embeddings(const Tensor& pixel_values) const;

  bool siglip_;
  bool patches_require_grad_;  // enable_input_require_grads: the tower's input embeddings
  Tensor class_embedding_;
  Conv2d patch_embedding_;
  Embedding position_embedding_;
  Tensor position_ids_;
  LayerNorm pre_layrnorm_;
  std::vector<ClipEncoder> encoder_;  // one
  LayerNorm post_layernorm_;
};

}  // namespace memcalc
