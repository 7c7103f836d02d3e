// LLaVA: transformers models/llava.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/families/clip/spec.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/image_text_spec.h"

namespace memcalc {

/// LLaVA 1.5 (models/llava): CLIP's tower, of which the states before its last layer are looked at, and an MLP.
struct LlavaParts {
  ImageTowerSpec tower;
  std::vector<std::int64_t> feature_layers;  // vision_feature_layer: places among the tower's states, from 0 on
  bool single_layer = true;                  // it is a number, not a list
  bool drops_class_token = true;             // vision_feature_select_strategy "default"
  std::string projector_act;
  bool projector_bias = true;

  [[nodiscard]] std::int64_t places() const {
    const std::int64_t states = tower.patches() + (tower.siglip ? 0 : 1);
    return states - (drops_class_token ? 1 : 0);
  }
};

BuildFamily build_llava;

namespace family {
extern const Family kLlava;
}  // namespace family

}  // namespace memcalc
