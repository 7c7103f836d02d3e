// MIRRORS(trl, "experimental/utils.py", "1.16.0")
#include "memcalc/train/trl/online_dpo.h"

#include <cstdint>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/generate.h"
#include "memcalc/train/parallel/wrapper.h"
#include "memcalc/train/trl/metrics.h"

namespace memcalc {

namespace {

/// As of GRPO: each of the steps generates.
constexpr std::int64_t kMostLayerTokensOfStep = 3072;

struct Prompts {
  Tensor ids, mask;  // each prompt twice
};
struct Completions {
  Tensor ids, mask;
};

/// experimental/utils.py, truncate_right: what comes after the first end becomes padding.
Completions truncate_right(Tape& tape, const Tensor& ids) {
  const std::int64_t rows = ids.size(0), tokens = ids.size(1);
  Tensor first_end;
  {  // first_true_indices
    const Tensor is_end = no_grad::isin(ids, no_grad::from_list(tape, {1}));
    Tensor numbers = no_grad::to(no_grad::bitwise_not(is_end), DType::kInt64);
    numbers = no_grad::multiply(numbers);
    numbers = no_grad::add(numbers, no_grad::arange(tape, tokens));
    first_end = no_grad::min(numbers, 1);
  }
  const Tensor places = no_grad::expand(no_grad::arange(tape, tokens), {rows, tokens});
  Completions result;
  result.ids = no_grad::masked_fill(ids, no_grad::greater(places, first_end));
  {
    const Tensor ones = no_grad::ones_like(ids);
    result.mask = no_grad::masked_fill(ones, no_grad::greater(places, first_end));
  }
  return result;
}

/// _generate, by transformers. Under gradient checkpointing without a cache: use_cache is False in its configuration.
Completions generate(Tape& tape, Model& model, const RunSpec& run, bool padded, const TrlModels& models,
                     Prompts& prompts) {
  const std::int64_t completion = run.training().completion_length, prompt = run.sequence_length - completion;
  const auto moved = [&] { return moved_to_card(tape, {run.batch_size, prompt}, DType::kInt64); };
  const Tensor ids = moved(), mask = moved();
  prompts.ids = no_grad::repeat(ids, {2, 1});
  prompts.mask = no_grad::repeat(mask, {2, 1});
  const NoGrad no_grad(tape.modes);
  GenerationCall call{.new_tokens = completion, .at_least = false, .samples = true, .padded = padded};
  call.caches = run.generation_cache && run.checkpointing() == Checkpointing::kNone;
  call.score_rules.add(ScoreRule::kTemperature);
  // The model in its autocast wrapper; of adapters, whose generate() is the base model's, the model without it.
  const bool is_whole = models.around != nullptr && models.around->gather_for_generation();
  if (!run.fine_tuning.lora && !is_whole) call.forward = models.trainer_model;
  Batch inputs;
  inputs.input_ids = prompts.ids;
  inputs.attention_mask = prompts.mask;
  Generation generation(tape, model, std::move(call), {.begins = true, .ends = true}, kMostLayerTokensOfStep);
  const Tensor output = generation.run(inputs);
  if (models.around != nullptr) models.around->part_after_generation();
  tape.moment.phase = Phase::kForward;
  return truncate_right(tape, no_grad::slice(output, 1, prompt, completion));
}

/// _forward: [2 * prompts, completion]. Of the logits only the completions' log-probabilities outlive it. `caches`: the
/// model's configuration has use_cache, and the output a cache of its own.
Tensor log_probs_of(const Prompts& prompts, const Completions& completions, bool padded, const CallModel& model,
                    bool caches) {
  const std::int64_t prompt = prompts.ids.size(1), completion = completions.ids.size(1);
  EncoderDecoderCache cache;
  Batch batch;
  if (caches) batch.past_key_values = &cache;
  batch.input_ids = no_grad::cat(prompts.ids, completions.ids, 1);
  batch.attention_mask = no_grad::cat(prompts.mask, completions.mask, 1);
  batch.padded = padded;
  const ModelOutput output = model(batch);
  const Tensor log_probs = log_softmax(slice(output.logits, 1, prompt - 1, completion));
  const Tensor index = no_grad::remainder(no_grad::unsqueeze(completions.ids, 2));  // take_along_dim's own
  return squeeze(gather(log_probs, index), 2);
}

/// _calculate_rewards_from_functions: numbers that a Python function returns, weighted and added up.
Tensor rewards_of(Tape& tape, std::int64_t rows) {
  const Tensor of_functions = no_grad::zeros(tape, {rows, 1}, DType::kFloat32);
  no_grad::from_list(tape, {rows}, DType::kFloat32).reset();
  const Tensor weights = no_grad::from_list(tape, {1, 1}, DType::kFloat32);
  return sum(no_grad::multiply(of_functions, weights), 0b10, false);
}

}  // namespace

Tensor OnlineDpoStep::loss(Tape& tape, Model& model, const RunSpec& run, bool padded, const TrlModels& models) {
  const std::int64_t samples = run.batch_size;
  const auto keep = [&](const Tensor& x) {
    variables_.push_back(x);
    return x;
  };
  {
    Prompts prompts;
    Completions completions = generate(tape, model, run, padded, models, prompts);
    prompt_ids_ = prompts.ids;
    prompt_mask_ = prompts.mask;
    completion_ids_ = completions.ids;
    completion_mask_ = completions.mask;
  }
  const Prompts prompts{prompt_ids_, prompt_mask_};
  const Completions completions{completion_ids_, completion_mask_};
  keep(no_grad::any(no_grad::isin(completion_ids_, no_grad::from_list(tape, {1})), 1));  // contain_eos_token
  const Tensor logprobs = keep(log_probs_of(prompts, completions, padded, models.policy, false));
  Tensor ref_logprobs;
  {
    const NoGrad no_grad(tape.modes);
    const bool has_model = static_cast<bool>(models.reference);
    const WithoutAdapters adapters(tape, models);
    // Gradient checkpointing switches use_cache off before the model is copied, the Trainer afterwards.
    const bool caches = has_model && run.checkpointing() == Checkpointing::kNone;
    ref_logprobs =
        keep(log_probs_of(prompts, completions, padded, has_model ? models.reference : models.trainer_model, caches));
  }
  read_on_host(tape, aten::kToCopy);  // completions are decoded
  const Tensor rewards = keep(rewards_of(tape, 2 * samples));
  const Tensor first = no_grad::slice(rewards, 0, 0, samples), second = no_grad::slice(rewards, 0, samples, samples);
  const Tensor mask = keep(no_grad::greater_equal(first, second));
  const Tensor batch_range = keep(no_grad::arange(tape, samples));
  const auto indices = [&](const Tensor& other) {
    return keep(no_grad::add(batch_range, no_grad::multiply(other, DType::kInt64)));
  };
  const Tensor chosen_indices = indices(no_grad::bitwise_not(mask)), rejected_indices = indices(mask);
  const Tensor cr_indices = keep(no_grad::cat(chosen_indices, rejected_indices, 0));
  const Tensor cr_logprobs = keep(index_rows(logprobs, cr_indices));
  const Tensor cr_ref_logprobs = keep(index_rows(ref_logprobs, cr_indices));
  const Tensor padding_mask = keep(no_grad::bitwise_not(no_grad::to(completion_mask_, DType::kBool)));
  const Tensor cr_padding_mask = keep(index_rows(padding_mask, cr_indices));
  const auto sums = [&](const Tensor& x) {
    return keep(sum(multiply(x, no_grad::bitwise_not(cr_padding_mask)), 0b10, false));
  };
  const Tensor cr_logprobs_sum = sums(cr_logprobs), cr_ref_logprobs_sum = sums(cr_ref_logprobs);
  const std::vector<Tensor> of_policy = halves(cr_logprobs_sum), of_reference = halves(cr_ref_logprobs_sum);
  const Tensor pi_logratios = keep(subtract(of_policy[0], of_policy[1]));
  const Tensor ref_logratios = keep(subtract(of_reference[0], of_reference[1]));
  const Tensor logits = keep(subtract(pi_logratios, ref_logratios));
  const Tensor losses = keep(negate(log_sigmoid(multiply_scalar(logits))));
  Tensor loss = mean(losses, 1, false);
  const NoGrad no_grad(tape.modes);
  look_at(keep(no_grad::subtract(index_rows(rewards, chosen_indices), index_rows(rewards, rejected_indices))));
  look_at(rewards);
  look_at(no_grad::to(variables_.front(), DType::kFloat32));
  look_at(of_policy[0]);
  look_at(of_policy[1]);
  const Tensor kl = keep(subtract(logprobs, ref_logprobs));
  look_at(keep(mean(sum(kl, 0b10, false), 1, false)));
  const Tensor non_score_reward = keep(sum(multiply_scalar(kl), 0b10, false));
  look_at(keep(mean(non_score_reward, 1, false)));
  look_at(keep(no_grad::add(rewards, non_score_reward)));
  look_at(keep(negate(mean(sum(logprobs, 0b10, false), 1, false))));
  const auto reward = [&](std::size_t half) {
    const Tensor made = keep(multiply_scalar(subtract(of_policy[half], of_reference[half])));
    look_at(made);
    return made;
  };
  const Tensor chosen_rewards = reward(0), rejected_rewards = reward(1);
  const Tensor margin = keep(subtract(chosen_rewards, rejected_rewards));
  look_at(margin);
  look_at(no_grad::to(keep(no_grad::greater(margin)), DType::kFloat32));
  return loss;
}

void OnlineDpoStep::clear() {
  drop(prompt_ids_, prompt_mask_, completion_ids_, completion_mask_);
  for (Tensor& each : variables_) each.reset();
  variables_.clear();
}

}  // namespace memcalc
