#include "memcalc/train/sampled_scores.h"

#include <algorithm>
#include <utility>

#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/scan.h"
#include "memcalc/symbolic/ops/scatter.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// scores = processor(input_ids, scores), in LogitsProcessorList.__call__
void call_processor(const Tensor& scores) { record_host_work(scores.tape(), HostWork::kLogitsProcessor); }

constexpr std::int64_t kTopK = 50;  // GenerationConfig's top_k

/// scores / temperature
Tensor temperature_warper(const Tensor& scores) { return no_grad::divide(scores); }

/// scores < torch.topk(scores, top_k)[0][..., -1, None]
Tensor top_k_warper(const Tensor& scores) {
  Tensor indices_to_remove;
  {
    const Tensor largest = topk(scores, std::min(kTopK, scores.size(-1))).values;
    indices_to_remove = no_grad::less(scores, no_grad::slice(largest, -1, largest.size(-1) - 1, 1));
  }
  return no_grad::masked_fill(scores, indices_to_remove);
}

Tensor top_p_warper(const Tensor& scores) {
  const Selection sorted = sort(scores);
  const Tensor cumulative_probs = cumulative_sum(softmax(sorted.values), scores.rank() - 1, scores.dtype());
  const Tensor sorted_indices_to_remove = no_grad::less_equal(cumulative_probs);
  no_grad::fill_in_place(no_grad::slice(sorted_indices_to_remove, -1, scores.size(-1) - 1, 1));  // [..., -1:] = 0
  const Tensor indices_to_remove =
      scatter(sorted_indices_to_remove, sorted.indices, sorted_indices_to_remove, Scattered::kReplaces);
  Tensor scores_processed = no_grad::masked_fill(scores, indices_to_remove);
  return scores_processed;
}

Tensor min_p_warper(const Tensor& scores) {
  const Tensor probs = softmax(scores);
  const Tensor top_probs = no_grad::amax(probs, scores.rank() - 1);
  const Tensor scaled_min_p = no_grad::multiply(top_probs);
  Tensor tokens_to_remove = no_grad::less(probs, scaled_min_p);
  const Tensor sorted_indices = topk(probs, 1).indices;
  tokens_to_remove = scatter_in_place(tokens_to_remove, sorted_indices, Tensor(), Scattered::kReplaces);
  return no_grad::masked_fill(scores, tokens_to_remove);
}

struct Warper {
  ScoreRule rule;
  Tensor (*call)(const Tensor& scores);
};
// In the order of _get_logits_processor.
constexpr Warper kWarpers[] = {{ScoreRule::kTemperature, temperature_warper},
                               {ScoreRule::kTopK, top_k_warper},
                               {ScoreRule::kTopP, top_p_warper},
                               {ScoreRule::kMinP, min_p_warper}};

}  // namespace

Tensor penalised(const Tensor& scores, const Tensor& input_ids) {
  call_processor(scores);
  Tensor score = no_grad::gather(scores, input_ids);
  {
    const Tensor negative = no_grad::less(score);
    const Tensor multiplied = no_grad::multiply(score), divided = no_grad::divide(score);
    score = no_grad::where(negative, multiplied, divided);
  }
  return scatter(scores, input_ids, score, Scattered::kReplaces);
}

Tensor warped(const Sampling& sampling, Tensor scores) {
  for (const Warper& warper : kWarpers) {
    if (!sampling.has(warper.rule)) continue;
    call_processor(scores);
    scores = warper.call(scores);
  }
  return scores;
}

}  // namespace memcalc
