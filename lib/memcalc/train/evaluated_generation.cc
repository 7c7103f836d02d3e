#include "memcalc/train/evaluated_generation.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/generate.h"

namespace memcalc {

namespace {

/// Of a batch's generation (train/generate.h, executed_tokens): there are several in an evaluation.
constexpr std::int64_t kMostLayerTokensOfEvaluation = 3072;

/// Of the checkpoints' generation_config.json: the start, the language, the task and <|notimestamps|>; 88 tokens that
/// are never written (large-v3: 89) and two that are not written first.
constexpr std::int64_t kWhisperStart = 4, kNeverWritten = 88, kNotWrittenFirst = 2;

/// WhisperGenerationMixin.generate of recordings of one segment, whose language and task are told. Its variables live
/// until it returns.
class WhisperCall {
 public:
  WhisperCall(Tape& tape, const Batch& inputs)
      : tape_(tape), init_tokens_(no_grad::from_list(tape, {1, kWhisperStart})), batch_(inputs) {
    suppressed_ = no_grad::from_list(tape, {kNeverWritten});
    suppressed_at_begin_ = no_grad::from_list(tape, {kNotWrittenFirst});
    // _get_input_segment: torch.cat of the rows. _prepare_decoder_input_ids: init_tokens[batch_idx_map].
    const Shape& shape = inputs.input_features.shape();
    batch_.input_features = tape.empty(shape, inputs.input_features.dtype(), aten::kCat, Category::kActivations);
    const std::int64_t rows = shape[0];
    const Tensor places = no_grad::from_list(tape, {rows});
    batch_.decoder_input_ids = tape.empty({rows, kWhisperStart}, DType::kInt64, aten::kIndex);
  }
  WhisperCall(const WhisperCall&) = delete;
  WhisperCall& operator=(const WhisperCall&) = delete;

  [[nodiscard]] const Batch& batch() const { return batch_; }
  void add_to(GenerationCall& call) const {
    call.suppressed = suppressed_;
    call.suppressed_at_begin = suppressed_at_begin_;
  }
  /// _pad_to_max_length of what each row has without its start: [rows, new tokens].
  [[nodiscard]] Tensor result(const Tensor& ids) const {
    const std::int64_t rows = ids.size(0), added = ids.size(1) - kWhisperStart;
    std::vector<Tensor> sequences;
    for (std::int64_t i = 0; i < rows; ++i) sequences.push_back(tape_.empty({added}, DType::kInt64, aten::kCat));
    return tape_.empty({rows, added}, DType::kInt64, aten::kStack);
  }

 private:
  Tape& tape_;
  Tensor init_tokens_, suppressed_, suppressed_at_begin_;
  Batch batch_;
};

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
  GenerationCall call{.new_tokens = evaluation.new_tokens, .beams = evaluation.beams, .at_least = false};
  call.padded = inputs.padded;
  call.evaluates = true;
  // Adapters' generate() is the base model's, whose forward nothing wraps.
  if (!run.fine_tuning.lora) call.forward = std::move(forward);
  const auto generated = [&](const Batch& batch) {
    Generation generation(tape, model, std::move(call), tokens, kMostLayerTokensOfEvaluation);
    return generation.run(batch);
  };
  if (run.task != Task::kSpeech) return padded_prediction(generated(inputs));
  const WhisperCall whisper(tape, inputs);
  whisper.add_to(call);
  return padded_prediction(whisper.result(generated(whisper.batch())));
}

}  // namespace memcalc
