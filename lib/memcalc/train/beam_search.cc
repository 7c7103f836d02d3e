// generation/utils.py, _beam_search with its auxiliary functions, early_stopping=False: every beam of every sequence is
// a row of the batch, and after each token the cache's rows are copied in the order of the surviving beams.
// MIRRORS(transformers, "generation/utils.py", "5.17.0")
#include <algorithm>
#include <utility>

#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/generate.h"

namespace memcalc {

namespace {

/// The sizes of a search, and its tensors of [batch, candidates, length].
struct Sizes {
  Tape& tape;
  std::int64_t batch, beams, kept;  // kept: candidates of a step, so that enough of them do not end
};

/// _gather_beams: take_along_dim over the beams for indices [batch, count], which are broadcast and wrapped first.
Tensor gather_beams(const Tensor& x, const Tensor& indices) {
  Shape shape = x.shape();
  shape[1] = indices.size(1);
  Tensor broadcast = indices;
  while (broadcast.rank() < x.rank()) broadcast = no_grad::unsqueeze(broadcast, -1);
  const Tensor wrapped = no_grad::remainder(no_grad::expand(broadcast, shape));
  return no_grad::gather(x, wrapped);
}

/// _flatten_beam_dim(x[:, :count]), [batch * count, …]: a view where its rows lie one behind the other, else a copy.
Tensor best_of(const Tensor& x, std::int64_t count) {
  const Tensor best = no_grad::slice(x, 1, 0, count);
  Shape rows{x.size(0) * count};
  if (x.rank() > 2) rows = Shape{x.size(0) * count, x.size(2)};
  const bool is_view = count == 1 || count == x.size(1) || x.size(0) == 1;
  return no_grad::view(is_view ? best : no_grad::clone(best), rows);
}

/// What the loop carries: its best running beams and its best finished ones.
struct Beams {
  Tensor running_sequences, sequences, running_scores, scores, is_sent_finished, may_improve, hits_stopping_criteria;
  Tensor running_indices, indices;

  Beams(const Sizes& s, std::int64_t prompt, std::int64_t max_length) {
    const Shape each{s.batch, s.beams};
    running_sequences = no_grad::full(s.tape, {s.batch, s.beams, max_length}, DType::kInt64);
    sequences = no_grad::clone(running_sequences);
    running_scores = no_grad::zeros(s.tape, each, DType::kFloat32);
    scores = no_grad::full(s.tape, each, DType::kFloat32);
    is_sent_finished = no_grad::zeros(s.tape, each, DType::kBool);
    may_improve = no_grad::ones(s.tape, {s.batch, 1}, DType::kBool);
    hits_stopping_criteria = no_grad::zeros(s.tape, each, DType::kBool);
    running_indices = no_grad::full(s.tape, {s.batch, s.beams, max_length - prompt}, DType::kInt32);
    indices = no_grad::clone(running_indices);
  }

  void clear() {
    drop(running_sequences, sequences, running_scores, scores, is_sent_finished, may_improve);
    drop(hits_stopping_criteria, running_indices, indices);
  }
};

/// The candidates of one step.
struct Candidates {
  Tensor log_probs, sequences, indices;
};

/// _get_top_k_continuations
Candidates top_continuations(const Sizes& s, const Tensor& log_probs, const Beams& beams) {
  Selection top = topk(log_probs, s.kept);
  Tensor beam_indices = no_grad::floor_divide(top.indices);
  Tensor indices = gather_beams(beams.running_indices, beam_indices);
  Tensor sequences = gather_beams(beams.running_sequences, beam_indices);
  Tensor ids = no_grad::remainder(top.indices);
  Tensor offset = no_grad::multiply(no_grad::view(no_grad::arange(s.tape, s.batch), {s.batch, 1}));
  Tensor modified = no_grad::add(beam_indices, offset);
  drop(top.indices, beam_indices, ids, offset, modified);
  return {std::move(top.values), std::move(sequences), std::move(indices)};
}

/// next_token_hits_stopping_criteria, [batch, candidates]
Tensor of_candidates(const Sizes& s, const Beams& beams) {
  return no_grad::view(beams.hits_stopping_criteria, {s.batch, s.kept});
}

/// _get_running_beams_for_next_iteration
void choose_running(const Sizes& s, const Candidates& candidates, Beams& beams) {
  Tensor log_probs =
      no_grad::add(candidates.log_probs, no_grad::multiply(no_grad::to(of_candidates(s, beams), DType::kFloat32)));
  Selection next = topk(log_probs, s.beams);
  next.values.reset();
  Tensor sequences = gather_beams(candidates.sequences, next.indices);
  Tensor scores = gather_beams(log_probs, next.indices);
  Tensor indices = gather_beams(candidates.indices, next.indices);
  drop(log_probs, next.indices);
  beams.running_sequences = std::move(sequences);
  beams.running_scores = std::move(scores);
  beams.running_indices = std::move(indices);
}

/// _update_finished_beams
void update_finished(const Sizes& s, const Candidates& candidates, const Tensor& top_num_beam_mask, Beams& beams) {
  Tensor just_finished = no_grad::bitwise_and(of_candidates(s, beams), top_num_beam_mask);
  Tensor log_probs = no_grad::divide(candidates.log_probs);
  Tensor full = no_grad::bitwise_and(no_grad::all(beams.is_sent_finished, 1, true));
  // Three penalties, each added in place: a condition as float32, times a number.
  {
    const Tensor condition = no_grad::to(full, DType::kFloat32);
    const Tensor penalty = no_grad::multiply(condition);
  }
  {
    const Tensor condition = no_grad::to(no_grad::bitwise_not(beams.may_improve), DType::kFloat32);
    const Tensor penalty = no_grad::multiply(condition);
  }
  {
    const Tensor condition = no_grad::bitwise_not(just_finished);
    const Tensor penalty = no_grad::multiply(condition, DType::kFloat32);
  }
  Tensor sequences = no_grad::cat(beams.sequences, candidates.sequences, 1);
  Tensor scores = no_grad::cat(beams.scores, log_probs, 1);
  Tensor indices = no_grad::cat(beams.indices, candidates.indices, 1);
  Tensor finished = no_grad::cat(beams.is_sent_finished, just_finished, 1);
  Selection best = topk(scores, s.beams);
  best.values.reset();
  Tensor best_sequences = gather_beams(sequences, best.indices);
  Tensor best_scores = gather_beams(scores, best.indices);
  Tensor best_indices = gather_beams(indices, best.indices);
  Tensor best_finished = gather_beams(finished, best.indices);
  drop(just_finished, log_probs, full, sequences, scores, indices, finished, best.indices);
  beams.sequences = std::move(best_sequences);
  beams.scores = std::move(best_scores);
  beams.indices = std::move(best_indices);
  beams.is_sent_finished = std::move(best_finished);
}

/// _check_early_stop_heuristic
void check_early_stop(Beams& beams) {
  Tensor best_possible = no_grad::divide(no_grad::slice(beams.running_scores, 1, 0, 1));
  Tensor worst_finished;
  {
    const Tensor least = no_grad::min(beams.scores, 1);
    const Tensor number = no_grad::scalar(least.tape(), DType::kFloat32);
    worst_finished = no_grad::where(beams.is_sent_finished, least, number);
  }
  Tensor any = no_grad::any(no_grad::greater(best_possible, worst_finished), 1, true);
  beams.may_improve = no_grad::bitwise_and(beams.may_improve, any);
  drop(any, best_possible, worst_finished);
}

/// _beam_search_has_unfinished_sequences
void look_for_unfinished(const Beams& beams) {
  const Tensor improvement_possible = no_grad::any(beams.may_improve);
  const Tensor open = no_grad::bitwise_not(no_grad::bitwise_and(no_grad::all(beams.is_sent_finished)));
  const Tensor valid = no_grad::bitwise_not(no_grad::all(beams.hits_stopping_criteria));
  const Tensor first = no_grad::bitwise_and(improvement_possible, open);
  read_on_host(no_grad::bitwise_and(first, valid));
}

}  // namespace

Tensor Generation::beam_search(const Batch& batch) {
  const std::int64_t beams_count = call_.beams;
  const std::int64_t prompt = input_ids_.size(1);
  const std::int64_t max_length = prompt + call_.new_tokens;
  // beams_to_keep: as many as could end, and as many again. One end token.
  const Sizes s{tape_, input_ids_.size(0) / beams_count, beams_count, 2 * beams_count};
  Tensor top_num_beam_mask = no_grad::from_list(tape_, {s.kept}, DType::kBool);
  Beams beams(s, prompt, max_length);
  Tensor flat_running_sequences = input_ids_, logits, log_probs, beam_idx;
  Candidates candidates;
  Batch model_inputs;
  ModelOutput outputs = prefill(batch);
  std::int64_t length = prompt;
  for (const ExecutedToken& token : tokens_to_execute()) {
    begin_token(token);
    length += token.skipped;
    if (token.skipped > 0) update_model_kwargs(token.skipped);
    if (token.index > 0) {
      flat_running_sequences = view(slice(beams.running_sequences, 2, 0, length), {s.batch * s.beams, length});
      outputs = decode(flat_running_sequences, batch, model_inputs);
    }
    update_model_kwargs(1);
    logits = last_logits(outputs);
    const std::int64_t vocabulary = logits.size(1);
    log_probs = log_softmax(logits);
    log_probs = process_logits(input_ids_, log_probs, token);
    outputs.clear();
    log_probs = view(log_probs, {s.batch, s.beams, vocabulary});
    log_probs = no_grad::add(log_probs, no_grad::unsqueeze(beams.running_scores, -1));
    log_probs = view(log_probs, {s.batch, s.beams * vocabulary});
    candidates = top_continuations(s, log_probs, beams);
    beams.hits_stopping_criteria =
        is_done(view(slice(candidates.sequences, 2, 0, length + 1), {s.batch * s.kept, length + 1}));
    choose_running(s, candidates, beams);
    update_finished(s, candidates, top_num_beam_mask, beams);
    beam_idx = no_grad::select(beams.running_indices, 2);
    cache_.self_attention.reorder(beam_idx);
    cache_.cross_attention.reorder(beam_idx);
    ++length;
    check_early_stop(beams);
    look_for_unfinished(beams);
  }
  tape_.kernels.repeats = repeats_;
  Tensor result;
  {  // the best beams of each sequence; how long they became is counted in their beam indices
    beams.sequences = best_of(beams.sequences, call_.return_sequences);
    beams.scores = best_of(beams.scores, call_.return_sequences);
    beams.indices = best_of(beams.indices, call_.return_sequences);
    Tensor present = no_grad::add(beams.indices);
    Tensor counted = no_grad::to(present, DType::kBool);
    present.reset();
    Tensor sums = no_grad::sum(counted, 1);
    counted.reset();
    const Tensor longest = no_grad::max(sums);
    sums.reset();
    const Tensor output_length = no_grad::add(longest);
    read_on_host(output_length);
    read_on_host(longest);
    result = slice(beams.sequences, 1, 0, length);
  }
  drop(top_num_beam_mask);
  beams.clear();
  drop(flat_running_sequences, logits, log_probs, candidates.log_probs, candidates.sequences, candidates.indices);
  beam_idx.reset();
  return result;
}

}  // namespace memcalc
