// Ministral 3 and the text model of Mistral 3: transformers models/ministral3, models/mistral3.
#pragma once

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

struct DecoderPlan;

/// Ministral 3 and Devstral 2 (models/ministral3): Mistral whose queries are scaled by their position.
struct Ministral3Spec : RotaryDecoderSpec {};

BuildFamily build_ministral3;
BuildFamily build_mistral3;
/// It refers to both. A model of images and text builds its text model by it, too.
[[nodiscard]] DecoderPlan ministral3_plan(const Architecture& text, const RunSpec& run);

namespace family {
extern const Family kMinistral3, kMistral3;
}  // namespace family

}  // namespace memcalc
