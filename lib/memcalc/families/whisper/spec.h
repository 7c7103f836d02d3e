// Whisper: transformers models/whisper.
#pragma once

#include <cstdint>

#include "memcalc/families/bart/spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Whisper (models/whisper): as BART, with norms before each layer, and two convolutions over mel features in front of
/// the encoder. max_position_embeddings is of the decoder (max_target_positions).
struct WhisperSpec : BartSpec {
  std::int64_t num_mel_bins = 0;
  std::int64_t max_source_positions = 0;
};

BuildFamily build_whisper;

namespace family {
extern const Family kWhisper;
}  // namespace family

}  // namespace memcalc
