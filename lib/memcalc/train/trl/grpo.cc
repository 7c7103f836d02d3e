// MIRRORS(trl, "trainer/grpo_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/rloo_trainer.py", "1.16.0")
#include "memcalc/train/trl/grpo.h"

#include <algorithm>
#include <array>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/nan_to_num.h"
#include "memcalc/symbolic/ops/nanmean.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/gather.h"
#include "memcalc/train/generate.h"
#include "memcalc/train/loop.h"
#include "memcalc/train/parallel/wrapper.h"
#include "memcalc/train/trl/grpo_loss.h"
#include "memcalc/train/trl/metrics.h"
#include "memcalc/train/trl/rewards.h"
#include "memcalc/train/trl/vllm.h"

namespace memcalc {

namespace {

/// Each of the steps generates; the peak is seldom there, and a run that does not fit is simulated many times.
constexpr std::int64_t kMostLayerTokensOfStep = 3072;
/// With --lengths there are up to 200 steps, of which the first ones have shown how a generation grows. The one whose
/// kernels are listed is executed as those.
constexpr std::int64_t kMostLayerTokensOfManySteps = 384;

std::int64_t most_layer_tokens(const Tape& tape, const RunSpec& run) {
  const bool is_one_of_many = run.training().lengths && tape.moment.step >= kSteps && !tape.kernels.recording;
  return is_one_of_many ? kMostLayerTokensOfManySteps : kMostLayerTokensOfStep;
}

/// What comes after the first end of a completion is cut off, on the host (_generate_single_turn).
void cut_at_end(Tape& tape, const Tensor& completion_ids) {
  const std::int64_t rows = completion_ids.size(0), tokens = completion_ids.size(1);
  const Tensor is_eos = no_grad::isin(completion_ids, no_grad::from_list(tape, {1}));
  const Tensor eos_idx = no_grad::full(tape, {rows}, DType::kInt64);
  {  // eos_idx[is_eos.any(dim=1)] = is_eos.int().argmax(dim=1)[is_eos.any(dim=1)], of no completion
    Tensor first = no_grad::argmax_last(no_grad::to(is_eos, DType::kInt32));
    Tensor ended = no_grad::any(is_eos, 1);
    index_by_mask(first, 0, ended, 0).reset();
    drop(first, ended);
    ended = no_grad::any(is_eos, 1);
    nonzero(ended, 0).reset();
  }
  const Tensor sequence_indices = no_grad::expand(no_grad::arange(tape, tokens), {rows, tokens});
  Tensor completion_mask = no_grad::less_equal(sequence_indices, no_grad::unsqueeze(eos_idx, 1));
  completion_mask = no_grad::to(completion_mask, DType::kInt32);
  no_grad::clone(completion_ids).reset();  // .cpu() of a part of each row
  read_on_host(tape, aten::kToCopy);
  no_grad::to(completion_mask, DType::kBool).reset();
  read_on_host(tape, aten::kToCopy);
}

/// _generate: how long prompts and completions are, of which none has ended.
void look_at_lengths(Tape& tape, std::int64_t rows) {
  const auto told = [&](DType dtype) { return no_grad::from_list(tape, {rows}, dtype); };
  const Tensor prompts = told(DType::kInt64), completions = told(DType::kInt64);
  const Tensor all_prompts = gathered(prompts), all_completions = gathered(completions);
  const Tensor prompt_tokens = no_grad::sum(all_prompts);
  const auto look_at_float = [&](const Tensor& x, Tensor (*reduced)(Arg)) {
    reduced(no_grad::to(x, DType::kFloat32)).reset();
    read_on_host(tape);
  };
  const auto mean_of = [](Arg x) { return mean(*x, 1, false); };
  if (tape.modes.training) {
    const Tensor tokens = no_grad::sum(all_completions);
    no_grad::add(prompt_tokens, tokens).reset();
    read_on_host(tape);
  }
  look_at_float(all_completions, mean_of);
  look_at_float(all_completions, no_grad::min);
  look_at_float(all_completions, no_grad::max);
  const Tensor is_truncated = told(DType::kBool), all_truncated = gathered(is_truncated);
  look_at_float(all_truncated, mean_of);
  index_by_mask(all_completions, 0, no_grad::bitwise_not(all_truncated), 0).reset();
  const Tensor ended = no_grad::from_list(tape, {1}, DType::kFloat32);
  look_at_float(ended, mean_of);
  look_at_float(ended, no_grad::min);
  look_at_float(ended, no_grad::max);
}

/// _generate_single_turn. `padded`: the prompts are not equally long, so that the mask masks something.
void generate(Tape& tape, Model& model, const RunSpec& run, const TrlModels& models, std::int64_t rows, bool padded) {
  const std::int64_t completion = run.training().completion_length, prompt = run.sequence_length - completion;
  Batch inputs;
  inputs.input_ids = moved_to_card(tape, {rows, prompt}, DType::kInt64);
  inputs.attention_mask = moved_to_card(tape, {rows, prompt}, DType::kInt64);
  GenerationCall call{
      .new_tokens = completion, .at_least = false, .samples = true, .padded = padded, .caches = run.generation_cache};
  call.evaluates = !tape.modes.training;
  // The model in its autocast wrapper; of adapters, whose generate() is the base model's, the model without it.
  const bool is_whole = models.around != nullptr && models.around->gather_for_generation();
  if (!run.fine_tuning.lora && !is_whole) call.forward = models.trainer_model;
  Generation generation(tape, model, std::move(call), {.begins = true, .ends = true}, most_layer_tokens(tape, run));
  const Tensor sequences = generation.run(inputs);
  if (models.around != nullptr) models.around->part_after_generation();
  if (tape.modes.training) tape.moment.phase = Phase::kForward;
  cut_at_end(tape, no_grad::slice(sequences, 1, prompt, completion));
}

/// Prompts with their completions.
struct Sequences {
  Tensor input_ids, attention_mask;
  bool padded = false;
};

/// `head_outputs`: the outputs with which the model was prepared. `of_policy`: entropies, and the auxiliary loss.
PerToken per_token(const RunSpec& run, const Sequences& sequences, std::int64_t batch_size, LogProbOutputs head_outputs,
                   bool of_policy, const CallModel& model) {
  const auto& [input_ids, attention_mask, padded] = sequences;
  const std::int64_t rows = input_ids.size(0), tokens = input_ids.size(1);
  const std::int64_t completion = run.training().completion_length;
  const bool balances_experts = of_policy && run.training().balances_experts;
  std::vector<Tensor> all_log_probs, all_entropies, all_aux_losses;
  Batch batch;
  FusedHeadCall head;
  ModelOutput outputs;
  const auto last = [&](const Tensor& x) { return slice(x, 1, tokens - 1 - completion, completion); };
  for (std::int64_t start = 0; start < rows; start += batch_size) {
    const std::int64_t count = std::min(batch_size, rows - start);
    batch.input_ids = no_grad::slice(input_ids, 0, start, count);
    batch.attention_mask = no_grad::slice(attention_mask, 0, start, count);
    batch.padded = padded;
    head = {.outputs = head_outputs, .targets = count * completion, .balances_experts = balances_experts};
    batch.fused_head = &head;
    // input_ids.masked_fill(attention_mask == 0, -100), whose prompt becomes -100 in place
    batch.labels = no_grad::masked_fill(batch.input_ids, no_grad::equal(batch.attention_mask));
    outputs = model(batch);
    all_log_probs.push_back(last(outputs.fused.log_probs));
    if (of_policy) all_entropies.push_back(last(outputs.fused.entropy));
    if (balances_experts) all_aux_losses.push_back(unsqueeze(outputs.fused.aux_loss, 0));
  }
  PerToken result{.log_probs = concatenate(all_log_probs, 0)};
  if (of_policy) result.entropies = concatenate(all_entropies, 0);
  if (balances_experts) result.aux_loss = mean(concatenate(all_aux_losses, 0), 1, false);  // stack().mean()
  return result;
}

/// (x * mask).sum(1)
Tensor masked_sum(const Tensor& x, const Tensor& mask) {
  const Tensor masked = no_grad::multiply(x, mask);
  return sum(masked, 0b10, false);
}

/// Of every completion, `batch_size` at a time, without gradients.
Tensor reference_log_probs(Tape& tape, const RunSpec& run, const Sequences& sequences, std::int64_t batch_size,
                           const TrlModels& models) {
  if (run.training().reference == Reference::kNone) return {};
  const bool has_model = static_cast<bool>(models.reference);
  const WithoutAdapters adapters(tape, models);
  return per_token(run, sequences, batch_size, {.entropy = !has_model}, false,
                   has_model ? models.reference : models.trainer_model)
      .log_probs;
}

/// vllm_importance_sampling_correction: how much likelier a completion, or each of its tokens, is for the model than it
/// was for vLLM, 0 or cut where that is beyond the limits. What lives until the completions are scored stays in it.
struct SamplingCorrection {
  VllmCorrection mode;
  Tensor per_token_logps_diff, per_sequence_logps_diff, invalid_mis_mask;

  void compute(ScoredCompletions& result) {
    per_token_logps_diff = no_grad::multiply(
        no_grad::subtract(result.old_per_token_logps, result.sampling_per_token_logps), result.completion_mask);
    per_token_logps_diff = no_grad::nan_to_num(per_token_logps_diff);
    if (of_sequences()) per_sequence_logps_diff = sum(per_token_logps_diff, 0b10, true);
    result.importance_sampling_ratio =
        no_grad::exponential(of_sequences() ? per_sequence_logps_diff : per_token_logps_diff);
    const Tensor& ratio = result.importance_sampling_ratio;
    if (mode == VllmCorrection::kSequenceTruncate || mode == VllmCorrection::kTokenTruncate) {
      result.importance_sampling_ratio = no_grad::clamp(ratio);
      return;
    }
    invalid_mis_mask = no_grad::bitwise_or(no_grad::less(ratio), no_grad::greater(ratio));
    result.importance_sampling_ratio = no_grad::masked_fill(ratio, invalid_mis_mask);
  }

  [[nodiscard]] bool of_sequences() const {
    return mode == VllmCorrection::kSequenceMask || mode == VllmCorrection::kSequenceTruncate;
  }

  /// The metrics of it.
  void look(Tape& tape, const ScoredCompletions& result) const {
    Tensor delta = no_grad::absolute(no_grad::subtract(result.old_per_token_logps, result.sampling_per_token_logps));
    const Tensor mask = no_grad::to(result.completion_mask, DType::kBool);
    delta =
        masked_select(delta, no_grad::bitwise_and(mask, no_grad::bitwise_not(no_grad::isnan(delta))), delta.elements());
    look_at(delta);
    no_grad::max(delta).reset();
    const Tensor& ratio = result.importance_sampling_ratio;
    const Tensor flat = of_sequences() ? ratio : masked_select(ratio, mask, ratio.elements());
    for (int i = 0; i < 3; ++i) look_at(flat);  // min, mean, max
    read_on_host(tape);
  }
};

/// _generate_and_score_completions: of `rows` of them, which are scored `batch_size` at a time.
ScoredCompletions scored(Tape& tape, Model& model, const RunSpec& run, const TrlModels& models, std::int64_t rows,
                         std::int64_t batch_size, bool padded) {
  const NoGrad no_grad(tape.modes);
  const std::int64_t completion = run.training().completion_length, prompt = run.sequence_length - completion;
  const bool by_vllm = run.uses_vllm();
  if (by_vllm) {
    generate_by_vllm(tape, model, run);
  } else {
    generate(tape, model, run, models, rows, padded);
  }
  look_at_lengths(tape, rows);
  ScoredCompletions result;
  result.padded = padded;
  result.prompt_ids = moved_to_card(tape, {rows, prompt}, DType::kInt64);
  result.prompt_mask = moved_to_card(tape, {rows, prompt}, DType::kInt64);
  result.completion_ids = moved_to_card(tape, {rows, completion}, DType::kInt64);
  result.completion_mask = moved_to_card(tape, {rows, completion}, DType::kInt64);
  const bool is_grpo = run.training().loop == Loop::kTrlGrpo;
  const bool corrects = is_grpo && by_vllm && run.training().vllm.correction != VllmCorrection::kNone;
  // A completion may be of an earlier version of the model.
  const bool has_old = corrects || (is_grpo && run.accumulation_steps() % run.training().generate_every() != 0);
  if (is_grpo && by_vllm) result.sampling_per_token_logps = moved_to_card(tape, {rows, completion}, DType::kFloat32);
  if (is_grpo) result.number_of_items = gathered_sum(result.completion_mask);
  Sequences sequences{.input_ids = no_grad::cat(result.prompt_ids, result.completion_ids, 1), .padded = padded};
  sequences.attention_mask = no_grad::cat(result.prompt_mask, result.completion_mask, 1);
  SamplingCorrection correction{.mode = run.training().vllm.correction};
  if (has_old) {
    result.old_per_token_logps =
        per_token(run, sequences, batch_size, {.entropy = true}, false, models.trainer_model).log_probs;
  }
  if (corrects) correction.compute(result);
  const std::int64_t generations = run.training().generations;
  Tensor old_per_token_logps, ref_per_token_logps, per_token_kl, kl, kl_stats;  // RLOO's variables
  Rewards rewards;
  if (is_grpo) {
    result.ref_per_token_logps = reference_log_probs(tape, run, sequences, batch_size, models);
    rewards = calculate_rewards(tape, rows);
    result.advantages = grpo_advantages(rewards, generations);
  } else {
    const Tensor& mask = result.completion_mask;
    old_per_token_logps =
        per_token(run, sequences, batch_size, {.entropy = true}, false, models.trainer_model).log_probs;
    result.old_logps = masked_sum(old_per_token_logps, mask);
    ref_per_token_logps = reference_log_probs(tape, run, sequences, batch_size, models);
    rewards = calculate_rewards(tape, rows);
    if (ref_per_token_logps.defined()) {
      per_token_kl = no_grad::subtract(old_per_token_logps, ref_per_token_logps);
      kl = gathered(masked_sum(per_token_kl, mask));
    }
    result.advantages = rloo_advantages(rewards, kl, generations);
    if (per_token_kl.defined()) kl_stats = look_at_masked_mean(per_token_kl, mask);
  }
  if (tape.processes > 1) result.advantages = slice(result.advantages, 0, 0, rows);  // this one's
  look_at_rewards(rewards);
  if (corrects) correction.look(tape, result);
  return result;
}

/// Tensors whose first dimension is the completion.
constexpr std::array kOfEachCompletion = {&ScoredCompletions::prompt_ids,
                                          &ScoredCompletions::prompt_mask,
                                          &ScoredCompletions::completion_ids,
                                          &ScoredCompletions::completion_mask,
                                          &ScoredCompletions::advantages,
                                          &ScoredCompletions::old_per_token_logps,
                                          &ScoredCompletions::importance_sampling_ratio,
                                          &ScoredCompletions::sampling_per_token_logps,
                                          &ScoredCompletions::ref_per_token_logps,
                                          &ScoredCompletions::old_logps};

}  // namespace

std::vector<ScoredCompletions> generate_and_score(Tape& tape, Model& model, const RunSpec& run, bool padded,
                                                  const TrlModels& models) {
  const std::int64_t rows = run.batch_size * run.training().generated_micro_batches();
  ScoredCompletions batch = scored(tape, model, run, models, rows, run.batch_size, padded);
  {  // shuffle_sequence_dict: v[permutation], of which only one number is left as it is
    ScoredCompletions shuffled;
    shuffled.number_of_items = batch.number_of_items;
    shuffled.padded = padded;
    for (const auto member : kOfEachCompletion) {
      if (!(batch.*member).defined()) continue;
      const Tensor permutation = moved_to_card(tape, {batch.prompt_ids.size(0)}, DType::kInt64);
      shuffled.*member = index_rows(batch.*member, permutation);
    }
    batch.clear();
    batch = shuffled;
    shuffled.clear();
  }
  std::vector<ScoredCompletions> parts(static_cast<std::size_t>(run.training().generated_micro_batches()), batch);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (const auto member : kOfEachCompletion) {
      if (!(batch.*member).defined()) continue;
      parts[i].*member = slice(batch.*member, 0, static_cast<std::int64_t>(i) * run.batch_size, run.batch_size);
    }
  }
  batch.clear();
  return parts;
}

namespace {

Tensor rloo_loss(Tape& tape, const ScoredCompletions& inputs, const PerToken& policy) {
  const Tensor& mask = inputs.completion_mask;
  const Tensor logps = sum(multiply(policy.log_probs, mask), 0b10, false);
  const Tensor log_ratio = subtract(logps, inputs.old_logps), ratio = exponential(log_ratio);
  const ClippedObjective clipped(ratio, inputs.advantages);
  Tensor loss = mean(clipped.loss, 1, false);
  if (policy.aux_loss.defined()) {
    loss = add(loss, multiply_scalar(policy.aux_loss));
    look_at(policy.aux_loss);
  }
  const NoGrad no_grad(tape.modes);
  const Tensor entropy_stats = look_at_masked_mean(policy.entropies, mask);
  const Clipping clipping(tape.detach(ratio), inputs.advantages);
  const auto seen = [](const Tensor& is_clipped) {
    Tensor result = gathered(no_grad::to(is_clipped, DType::kFloat32));
    no_grad::nanmean(result, 1, false).reset();
    read_on_host(result);
    return result;
  };
  const Tensor low = seen(clipping.is_low);
  look_at_extreme(low, no_grad::min);
  const Tensor high = seen(clipping.is_high);
  look_at_extreme(high, no_grad::max);
  const Tensor region = seen(clipping.is_clipped);
  return loss;
}

}  // namespace

Tensor completion_loss(Tape& tape, const RunSpec& run, const ScoredCompletions& inputs, const TrlModels& models) {
  Sequences sequences{.input_ids = no_grad::cat(inputs.prompt_ids, inputs.completion_ids, 1), .padded = inputs.padded};
  sequences.attention_mask = no_grad::cat(inputs.prompt_mask, inputs.completion_mask, 1);
  const std::int64_t rows = sequences.input_ids.size(0);
  const PerToken policy = per_token(run, sequences, rows, {.entropy = true}, true, models.policy);
  if (run.training().loop == Loop::kTrlRloo) return rloo_loss(tape, inputs, policy);
  return grpo_loss(tape, run.training(), inputs, policy);
}

Tensor evaluated_loss(Tape& tape, Model& model, const RunSpec& run, std::int64_t rows, bool padded,
                      const TrlModels& models) {
  const ScoredCompletions inputs =
      scored(tape, model, run, models, rows, run.training().evaluation->batch_size, padded);
  return mean(completion_loss(tape, run, inputs, models), 0, false);
}

}  // namespace memcalc
