// gpt-oss: transformers models/gpt_oss.
#pragma once

#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// gpt-oss (models/gpt_oss): attention sinks, local and global layers in turn, experts with biases.
struct GptOssSpec : RotaryDecoderSpec {
  ExpertsSpec experts;
  std::vector<bool> sliding_layers;
};

BuildFamily build_gpt_oss;

namespace family {
extern const Family kGptOss;
}  // namespace family

}  // namespace memcalc
