// Dream: the hub's own modeling_dream.py.
#pragma once

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Dream (model_type Dream): Qwen2.5 whose tokens all see each other, trained to fill in masked ones.
struct DreamSpec : RotaryDecoderSpec {};

BuildFamily build_dream;

namespace family {
extern const Family kDream;
}  // namespace family

}  // namespace memcalc
