// The text model of DeepSeek-OCR 2: transformers models/deepseek_ocr2.
#pragma once

#include <cstdint>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// DeepseekOcr2TextModel (models/deepseek_ocr2): LLaMA's attention, DeepSeek-V2's experts.
struct DeepseekOcr2Spec : RotaryDecoderSpec {
  ExpertsSpec experts;
  std::int64_t n_shared_experts = 0;
  std::int64_t first_k_dense_replace = 0;  // so many layers have an MLP instead
  std::int64_t n_group = 0;                // the experts' groups, where the router first chooses among them; else 0
  std::int64_t topk_group = 0;
  bool mlp_bias = false;
};

BuildFamily build_deepseek_ocr2;

namespace family {
extern const Family kDeepseekOcr2Text;
}  // namespace family

}  // namespace memcalc
