// What Seq2SeqTrainer generates in an evaluation (predict_with_generate): transformers 5.17, trainer_seq2seq.py, of an
// encoder-decoder, a decoder or Whisper, whose own generate() stands before. Covered by
// tests/unit/evaluated_generation_test.cc and tests/measured/jobs_test.py.
// MIRRORS(transformers, "models/whisper/generation_whisper.py", "5.17.0")
// MIRRORS(transformers, "trainer_seq2seq.py", "5.17.0")
#pragma once

#include <functional>

#include "memcalc/models/model.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// self.model.generate(**inputs, max_length=…): the ids of a batch, padded; of a decoder with its prompts before them.
/// `forward`: the model as accelerate has wrapped it.
[[nodiscard]] Tensor generated_in_evaluation(Tape& tape, Model& model, const RunSpec& run, const Batch& inputs,
                                             const SpecialTokens& tokens,
                                             std::function<ModelOutput(const Batch&)> forward);

/// _pad_tensors_to_max_len: up to the default max_length of the model's generation_config, whatever the evaluation's
/// own is.
[[nodiscard]] Tensor padded_prediction(const Tensor& tokens);

}  // namespace memcalc
