// Inference: model(**batch) or model.generate(**batch), in model.eval() and under torch.no_grad(). Two calls, because
// the blocks that the first leaves behind decide where the second one's go; peaks are those of the second.
#include <algorithm>
#include <optional>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/train/generate.h"
#include "memcalc/train/loop.h"
#include "memcalc/train/whisper_call.h"

namespace memcalc {

namespace {

constexpr int kCalls = 2;

/// One forward pass. Its output is the caller's.
KeyValueCacheSize call_forward(Tape& tape, Model& model, const Batch& batch) {
  tape.moment.phase = Phase::kForward;
  const Scoped<bool> integers(tape.kernels.integers, true);
  record_host_work(tape, HostWork::kModelCall);
  ModelOutput output = model.forward(batch);
  const KeyValueCacheSize size = output.past_key_values.size();
  tape.moment.phase = Phase::kDelete;
  output.clear();
  return size;
}

KeyValueCacheSize call_generate(Tape& tape, Model& model, const RunSpec& run, const SpecialTokens& tokens,
                                std::int64_t most_layer_tokens, const Batch& batch) {
  tape.moment.phase = Phase::kForward;
  GenerationCall call{.new_tokens = run.inference()->new_tokens,
                      .beams = run.inference()->beams,
                      .return_sequences = run.inference()->return_sequences,
                      .caches = run.generation_cache};
  if (const std::optional<Sampling>& sampling = run.inference()->sampling) {
    call.samples = true;
    call.score_rules = *sampling;
  }
  std::optional<WhisperCall> whisper;
  if (run.task == Task::kSpeech) {
    whisper.emplace(tape, batch, WhisperTokens::of_config());
    whisper->add_to(call);
  }
  Generation generation(tape, model, std::move(call), tokens, most_layer_tokens);
  Tensor sequences = generation.run(whisper ? whisper->batch() : batch);
  if (whisper) sequences = whisper->result(sequences);
  tape.moment.phase = Phase::kDelete;
  whisper.reset();
  sequences.reset();
  return generation.cache_size();
}

}  // namespace

InferenceCalls run_inference(Tape& tape, Model& model, const RunSpec& run, std::string_view model_type,
                             std::int64_t most_layer_tokens) {
  Batch batch = make_batch(tape, model, run, aten::kRandint);
  tape.memory.empty_cache();
  tape.moment.phase = Phase::kForward;
  tape.moment.step = 0;
  // Of a program whose decoder begins with the labels they stay: it was recorded with them.
  const bool takes_labels = std::any_of(model.inputs.begin(), model.inputs.end(),
                                        [](const ModelInput& each) { return each.member == &Batch::labels; });
  if (!takes_labels) batch.labels.reset();
  const NoGrad no_grad(tape.modes);
  const Scoped eval(tape.modes.training, false);
  // Around both calls: copies of the weights stay between them.
  const Autocasting autocasting(tape.modes.autocast, autocast_dtype(run.precision));
  InferenceCalls calls;
  KeyValueCacheSize cache;
  for (; tape.moment.step < kCalls; ++tape.moment.step) {
    tape.kernels.recording = tape.moment.step == kCalls - 1;
    if (tape.kernels.recording) tape.kernels.forget_host_calls();
    calls.second_call = tape.memory.trace.events.size();
    if (run.inference()->new_tokens == 0) {
      cache = call_forward(tape, model, batch);
    } else {
      cache = call_generate(tape, model, run, special_tokens_of(model_type), most_layer_tokens, batch);
    }
  }
  tape.memory.stop();
  if (cache.layers > 0) calls.cache = cache;
  return calls;
}

}  // namespace memcalc
