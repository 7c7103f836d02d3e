// Mistral Small 4's text model: transformers models/mistral4.
#pragma once

#include "memcalc/families/deepseek/spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Mistral 4 (models/mistral4): DeepSeek-V3's latent attention and experts, whose router takes a softmax, with
/// Ministral 3's scale of queries by their position.
struct Mistral4Spec : DeepseekSpec {
  bool norm_topk_prob = true;
  bool rope_interleave = true;
};

BuildFamily build_mistral4;

namespace family {
extern const Family kMistral4;
}  // namespace family

}  // namespace memcalc
