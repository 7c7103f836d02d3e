#include "memcalc/train/evaluated_generation.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/generate.h"
#include "memcalc/train/whisper_call.h"

namespace memcalc {

namespace {

/// Of a batch's generation (train/generate.h, executed_tokens): there are several in an evaluation.
constexpr std::int64_t kMostLayerTokensOfEvaluation = 3072;

}  // namespace

Tensor padded_prediction(const Tensor& tokens) {
  constexpr std::int64_t kMaxLength = 20;
  if (tokens.size(tokens.rank() - 1) >= kMaxLength) return tokens;
  return no_grad::multiply(no_grad::ones(tokens.tape(), {tokens.size(0), kMaxLength}, DType::kInt64));
}

// The encoder is called by itself, outside of what accelerate wraps in autocast.
Tensor generated_in_evaluation(Tape& tape, Model& model, const RunSpec& run, const Batch& inputs,
                               const SpecialTokens& tokens, std::function<ModelOutput(const Batch&)> forward) {
  const Evaluation& evaluation = *run.training().evaluation;
  GenerationCall call{.new_tokens = evaluation.new_tokens,
                      .beams = evaluation.beams,
                      .at_least = false,
                      .caches = run.generation_cache};
  call.padded = inputs.padded;
  call.evaluates = true;
  // Adapters' generate() is the base model's, whose forward nothing wraps.
  if (!run.fine_tuning.lora) call.forward = std::move(forward);
  const auto generated = [&](const Batch& batch) {
    Generation generation(tape, model, std::move(call), tokens, kMostLayerTokensOfEvaluation);
    return generation.run(batch);
  };
  if (run.task != Task::kSpeech) return padded_prediction(generated(inputs));
  const WhisperCall whisper(tape, inputs, WhisperTokens::of_checkpoint());
  whisper.add_to(call);
  return padded_prediction(whisper.result(generated(whisper.batch())));
}

}  // namespace memcalc
