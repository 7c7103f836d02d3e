// generation/utils.py, _beam_search with its auxiliary functions, early_stopping=False: every beam of every sequence is
// a row of the batch, and after each token the cache's rows are copied in the order of the surviving beams.
#include <algorithm>
#include <utility>

#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/generate.h"

namespace memcalc {

namespace {

constexpr Operator kToCopy{"aten::_to_copy"}, kFull{"aten::full"}, kClone{"aten::clone"}, kZeros{"aten::zeros"};
constexpr Operator kOnes{"aten::ones"}, kFloorDivide{"aten::floor_divide"}, kRemainder{"aten::remainder"};
constexpr Operator kGather{"aten::gather"}, kArange{"aten::arange"}, kMul{"aten::mul"}, kAdd{"aten::add"};
constexpr Operator kDiv{"aten::div"}, kAnd{"aten::bitwise_and"}, kNot{"aten::bitwise_not"}, kAll{"aten::all"};
constexpr Operator kAny{"aten::any"}, kCat{"aten::cat"}, kMin{"aten::min"}, kWhere{"aten::where"}, kGt{"aten::gt"};
constexpr Operator kSum{"aten::sum"};

/// The sizes of a search, and its tensors of [batch, candidates, length].
struct Sizes {
  Tape& tape;
  std::int64_t batch, beams, kept;  // kept: candidates of a step, so that enough of them do not end

  [[nodiscard]] Tensor make(const Shape& shape, DType dtype, const Operator& op) const {
    return tape.empty(shape, dtype, op);
  }
  /// _gather_beams: take_along_dim over the beams, which wraps the broadcast indices first.
  [[nodiscard]] Tensor chosen(const Tensor& x, std::int64_t count) const {
    Shape shape = x.shape();
    shape[1] = count;
    const Tensor wrapped = make(shape, DType::kInt64, kRemainder);
    return make(shape, x.dtype(), kGather);
  }
  /// torch.cat((finished, candidates), dim=1)
  [[nodiscard]] Tensor merged(const Tensor& finished, const Tensor& candidates) const {
    Shape shape = candidates.shape();
    shape[1] += finished.size(1);
    return make(shape, candidates.dtype(), kCat);
  }
};

/// What the loop carries: its best running beams and its best finished ones.
struct Beams {
  Tensor running_sequences, sequences, running_scores, scores, is_sent_finished, may_improve, hits_stopping_criteria;
  Tensor running_indices, indices;

  Beams(const Sizes& s, std::int64_t prompt, std::int64_t max_length) {
    running_sequences = s.make({s.batch, s.beams, max_length}, DType::kInt64, kFull);
    sequences = s.make(running_sequences.shape(), DType::kInt64, kClone);
    running_scores = s.make({s.batch, s.beams}, DType::kFloat32, kZeros);
    scores = s.make({s.batch, s.beams}, DType::kFloat32, kFull);
    is_sent_finished = s.make({s.batch, s.beams}, DType::kBool, kZeros);
    may_improve = s.make({s.batch, 1}, DType::kBool, kOnes);
    hits_stopping_criteria = s.make({s.batch, s.beams}, DType::kBool, kZeros);
    running_indices = s.make({s.batch, s.beams, max_length - prompt}, DType::kInt32, kFull);
    indices = s.make(running_indices.shape(), DType::kInt32, kClone);
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
  Tensor beam_indices = s.make({s.batch, s.kept}, DType::kInt64, kFloorDivide);
  Tensor indices = s.chosen(beams.running_indices, s.kept);
  Tensor sequences = s.chosen(beams.running_sequences, s.kept);
  Tensor ids = s.make({s.batch, s.kept}, DType::kInt64, kRemainder);
  Tensor offset;
  {
    const Tensor range = s.make({s.batch}, DType::kInt64, kArange);
    offset = s.make({s.batch, 1}, DType::kInt64, kMul);
  }
  Tensor modified = s.make({s.batch, s.kept}, DType::kInt64, kAdd);
  drop(top.indices, beam_indices, ids, offset, modified);
  return {std::move(top.values), std::move(sequences), std::move(indices)};
}

/// _get_running_beams_for_next_iteration
void choose_running(const Sizes& s, const Candidates& candidates, Beams& beams) {
  Tensor log_probs;
  {
    Tensor stopped = s.make({s.batch, s.kept}, DType::kFloat32, kToCopy);
    const Tensor penalty = s.make({s.batch, s.kept}, DType::kFloat32, kMul);
    stopped.reset();
    log_probs = s.make({s.batch, s.kept}, DType::kFloat32, kAdd);
  }
  Selection next = topk(log_probs, s.beams);
  next.values.reset();
  Tensor sequences = s.chosen(candidates.sequences, s.beams);
  Tensor scores = s.chosen(log_probs, s.beams);
  Tensor indices = s.chosen(candidates.indices, s.beams);
  drop(log_probs, next.indices);
  beams.running_sequences = std::move(sequences);
  beams.running_scores = std::move(scores);
  beams.running_indices = std::move(indices);
}

/// _update_finished_beams
void update_finished(const Sizes& s, const Candidates& candidates, Beams& beams) {
  const Shape shape{s.batch, s.kept};
  Tensor just_finished = s.make(shape, DType::kBool, kAnd);
  Tensor log_probs = s.make(shape, DType::kFloat32, kDiv);
  Tensor full;
  {
    const Tensor all = s.make({s.batch, 1}, DType::kBool, kAll);
    full = s.make({s.batch, 1}, DType::kBool, kAnd);
  }
  // Each of the three penalties: a condition as float32, times a number, added in place.
  for (int i = 0; i < 3; ++i) {
    const Shape one = i < 2 ? Shape{s.batch, 1} : shape;
    Tensor condition = i > 0 ? s.make(one, DType::kBool, kNot) : Tensor();
    const Tensor converted = i < 2 ? s.make(one, DType::kFloat32, kToCopy) : Tensor();
    if (i < 2) condition.reset();
    const Tensor penalty = s.make(one, DType::kFloat32, kMul);
  }
  Tensor sequences = s.merged(beams.sequences, candidates.sequences);
  Tensor scores = s.merged(beams.scores, log_probs);
  Tensor indices = s.merged(beams.indices, candidates.indices);
  Tensor finished = s.merged(beams.is_sent_finished, just_finished);
  Selection best = topk(scores, s.beams);
  best.values.reset();
  Tensor best_sequences = s.chosen(sequences, s.beams);
  Tensor best_scores = s.chosen(scores, s.beams);
  Tensor best_indices = s.chosen(indices, s.beams);
  Tensor best_finished = s.chosen(finished, s.beams);
  drop(just_finished, log_probs, full, sequences, scores, indices, finished, best.indices);
  beams.sequences = std::move(best_sequences);
  beams.scores = std::move(best_scores);
  beams.indices = std::move(best_indices);
  beams.is_sent_finished = std::move(best_finished);
}

/// _check_early_stop_heuristic
void check_early_stop(const Sizes& s, Beams& beams) {
  const Shape one{s.batch, 1};
  Tensor best_possible = s.make(one, DType::kFloat32, kDiv);
  Tensor worst_finished;
  {
    Selection least{s.make(one, DType::kFloat32, kMin), s.make(one, DType::kInt64, kMin)};
    least.indices.reset();
    const Tensor number = s.make({}, DType::kFloat32, kWhere);
    worst_finished = s.make({s.batch, s.beams}, DType::kFloat32, kWhere);
  }
  Tensor better = s.make({s.batch, s.beams}, DType::kBool, kGt);
  Tensor any = s.make(one, DType::kBool, kAny);
  better.reset();
  beams.may_improve = s.make(one, DType::kBool, kAnd);
  drop(any, best_possible, worst_finished);
}

/// _beam_search_has_unfinished_sequences
void look_for_unfinished(const Sizes& s) {
  const Tensor improvement_possible = s.make({}, DType::kBool, kAny);
  Tensor all = s.make({}, DType::kBool, kAll);
  Tensor open = s.make({}, DType::kBool, kAnd);
  all.reset();
  open = s.make({}, DType::kBool, kNot);
  Tensor hit = s.make({}, DType::kBool, kAll);
  const Tensor valid = s.make({}, DType::kBool, kNot);
  hit.reset();
  const Tensor first = s.make({}, DType::kBool, kAnd);
  const Tensor second = s.make({}, DType::kBool, kAnd);
}

}  // namespace

Tensor Generation::beam_search(const Batch& batch) {
  const std::int64_t beams_count = run_.inference()->beams;
  const std::int64_t prompt = input_ids_.size(1);
  const std::int64_t max_length = prompt + run_.inference()->new_tokens;
  // beams_to_keep: as many as could end, and as many again. One end token.
  const Sizes s{tape_, input_ids_.size(0) / beams_count, beams_count, 2 * beams_count};
  Tensor top_num_beam_mask = s.make({s.kept}, DType::kBool, kToCopy);
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
    log_probs = process_logits(log_probs);
    outputs.clear();
    log_probs = view(log_probs, {s.batch, s.beams, vocabulary});
    log_probs = s.make(log_probs.shape(), DType::kFloat32, kAdd);
    log_probs = view(log_probs, {s.batch, s.beams * vocabulary});
    candidates = top_continuations(s, log_probs, beams);
    beams.hits_stopping_criteria =
        is_done(view(slice(candidates.sequences, 2, 0, length + 1), {s.batch * s.kept, length + 1}));
    choose_running(s, candidates, beams);
    update_finished(s, candidates, beams);
    beam_idx = beams.running_indices;  // a view of its column
    cache_.self_attention.reorder();
    cache_.cross_attention.reorder();
    ++length;
    check_early_stop(s, beams);
    look_for_unfinished(s);
  }
  tape_.kernels.repeats = 1;
  Tensor result;
  {  // the best beam of each sequence; how long it became is counted in its beam indices
    const Tensor present = s.make({s.batch, max_length - prompt}, DType::kInt32, kAdd);
    const Tensor counted = s.make({s.batch, max_length - prompt}, DType::kBool, kToCopy);
    const Tensor sums = s.make({s.batch}, DType::kInt64, kSum);
    result = slice(beams.sequences, 1, 0, 1);
  }
  drop(top_num_beam_mask);
  beams.clear();
  drop(flat_running_sequences, logits, log_probs, candidates.log_probs, candidates.sequences, candidates.indices);
  beam_idx.reset();
  return result;
}

}  // namespace memcalc
