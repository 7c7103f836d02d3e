// LitGPT's modules, with the sizes of LLaMA, GPT-NeoX or Phi; its lit_config.json is read by spec/lit_config.h.
#pragma once

#include "memcalc/spec/family.h"

namespace memcalc {

BuildFamily build_litgpt;

namespace family {
extern const Family kLitGpt;
}  // namespace family

}  // namespace memcalc
