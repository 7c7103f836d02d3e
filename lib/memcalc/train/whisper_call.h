// WhisperGenerationMixin.generate of recordings of one segment, which stands before the usual generate(). What it keeps
// of times (seek, max_frames) lies on the host. Covered by tests/measured/generate_streams_test.cc and
// tests/unit/evaluated_generation_test.cc.
// MIRRORS(transformers, "models/whisper/generation_whisper.py", "5.17.0")
#pragma once

#include <cstdint>

#include "memcalc/models/model.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/generate.h"

namespace memcalc {

struct WhisperTokens {
  std::int64_t start;        // tokens that each row starts with
  std::int64_t never;        // tokens that are never written; 0: suppress_tokens is not set
  std::int64_t never_first;  // that are not written first

  /// Of the checkpoints' generation_config.json: the start, the language, the task and <|notimestamps|>; 88 tokens
  /// (large-v3: 89) and two.
  static constexpr WhisperTokens of_checkpoint() { return {.start = 4, .never = 88, .never_first = 2}; }
  /// Of a model that was made of its config.json alone, as the measured ones were: WhisperConfig's defaults.
  static constexpr WhisperTokens of_config() { return {.start = 1, .never = 0, .never_first = 2}; }
};

/// Its variables live until it returns.
class WhisperCall {
 public:
  WhisperCall(Tape& tape, const Batch& inputs, WhisperTokens tokens);
  WhisperCall(const WhisperCall&) = delete;
  WhisperCall& operator=(const WhisperCall&) = delete;

  /// What it gives to the usual generate().
  [[nodiscard]] const Batch& batch() const { return batch_; }
  void add_to(GenerationCall& call) const;
  /// _pad_to_max_length of what each row has without its start: [rows, new tokens].
  [[nodiscard]] Tensor result(const Tensor& ids) const;

 private:
  Tape& tape_;
  WhisperTokens tokens_;
  Tensor init_tokens_, suppressed_, suppressed_at_begin_;
  Batch batch_;
};

}  // namespace memcalc
