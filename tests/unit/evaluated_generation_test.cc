// train/evaluated_generation.h: what Seq2SeqTrainer's evaluation asks for when it generates (transformers 5.17,
// trainer_seq2seq.py, models/whisper/generation_whisper.py).
#include "memcalc/train/evaluated_generation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "memcalc/memcalc.h"
#include "memcalc/train/step.h"
#include "support/rule_case.h"
#include "support/small_llama.h"

namespace memcalc {
namespace {

RunOptions evaluating(Task task, std::int64_t samples, std::int64_t new_tokens) {
  RunOptions options{.task = task, .batch_size = 1, .loop = Loop::kTrainer};
  options.sequence_length = 24;
  options.eval_batch_size = 2;
  options.eval_samples = samples;
  options.eval_new_tokens = new_tokens;
  return options;
}

SymbolicRun run_of(const ModelSpec& model, const RunOptions& options) {
  return run_symbolically(model, resolve(model, options).run, test::device());
}

/// Requests of an evaluation by this operator for so many bytes.
std::int64_t requests(const SymbolicRun& run, std::string_view op, Bytes bytes) {
  return std::count_if(run.trace.events.begin(), run.trace.events.end(), [&](const Event& event) {
    return event.phase == Phase::kEvaluation && event.kind == EventKind::kAllocate &&
           std::string_view(event.op->name) == op && run.trace.blocks[event.block].requested == bytes;
  });
}

TEST(EvaluatedGeneration, WhisperCopiesTheRecordingsAndLooksForWhatItNeverWrites) {
  const SymbolicRun run = run_of(test::model_of("whisper-tiny"), evaluating(Task::kSpeech, 2, 5));
  constexpr Bytes kRecordings = 2 * 80 * 3000 * 4;
  EXPECT_EQ(requests(run, "aten::cat", kRecordings), 1);
  EXPECT_EQ(requests(run, "aten::isin", 51865), 3 * 5) << "found and compared with two tokens, found among 88";
  EXPECT_EQ(requests(run, "aten::stack", 2 * 5 * 8), 1) << "without its start";
}

TEST(EvaluatedGeneration, ADecoderWritesBehindTheWholeRow) {
  const SymbolicRun run = run_of(test::small_llama(), evaluating(Task::kCausalLm, 4, 5));
  EXPECT_EQ(requests(run, "aten::cat", 4 * (24 + 5) * 8), 1) << "the tokens of two batches";
  EXPECT_EQ(requests(run, "aten::cat", 4 * 24 * 8), 1) << "and their labels";
}

TEST(EvaluatedGeneration, WithoutLabelsThereIsNoLoss) {
  RunOptions options = evaluating(Task::kCausalLm, 4, 5);
  options.no_eval_labels = true;
  const SymbolicRun run = run_of(test::small_llama(), options);
  EXPECT_EQ(requests(run, "aten::cat", 4 * (24 + 5) * 8), 1);
  EXPECT_EQ(requests(run, "aten::cat", 4 * 24 * 8), 0);
}

TEST(EvaluatedGeneration, ShortPredictionsArePaddedToTwenty) {
  const ModelSpec model = test::model_of("t5-small");
  RunOptions options = evaluating(Task::kSeq2Seq, 4, 5);
  options.target_sequence_length = 7;
  const SymbolicRun run = run_of(model, options);
  EXPECT_EQ(requests(run, "aten::cat", 4 * 20 * 8), 2) << "tokens and labels";
}

}  // namespace
}  // namespace memcalc
