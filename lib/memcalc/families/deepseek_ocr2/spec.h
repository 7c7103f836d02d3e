// The text model of DeepSeek-OCR 2: transformers models/deepseek_ocr2.
#pragma once

#include <cstdint>

#include "memcalc/spec/family.h"
#include "memcalc/spec/shared_experts_spec.h"

namespace memcalc {

/// DeepseekOcr2TextModel (models/deepseek_ocr2): LLaMA's attention, DeepSeek-V2's experts.
struct DeepseekOcr2Spec : SharedExpertsSpec {
  bool mlp_bias = false;
};

BuildFamily build_deepseek_ocr2;

namespace family {
extern const Family kDeepseekOcr2Text;
}  // namespace family

}  // namespace memcalc
