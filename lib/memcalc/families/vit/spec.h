// ViT and DeiT: transformers models/vit, models/deit.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/spec/family.h"

namespace memcalc {

/// ViT and DeiT for image classification (models/vit, models/deit).
struct VitSpec {
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t image_size = 0;
  std::int64_t patch_size = 0;
  std::int64_t num_channels = 3;
  std::int64_t num_labels = 2;
  std::string hidden_act;
  double hidden_dropout_prob = 0;
  double attention_probs_dropout_prob = 0;
  bool qkv_bias = true;
  bool is_deit = false;  // a distillation token beside the class token
};

BuildFamily build_vit;

namespace family {
extern const Family kVit, kDeit;
}  // namespace family

}  // namespace memcalc
