// MIRRORS(transformers, "trainer_pt_utils.py", "5.17.0")
#include "memcalc/train/label_smoother.h"

#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

Tensor smoothed_loss(const Tensor& model_logits, const Tensor& model_labels, const Tensor& items, bool shifts) {
  Tensor logits = model_logits, labels = model_labels;
  if (shifts) {
    const std::int64_t tokens = logits.size(1) - 1;
    logits = contiguous(slice(logits, 1, 0, tokens));
    labels = no_grad::clone(no_grad::slice(labels, 1, 1, tokens));
  }
  const int last = logits.rank() - 1;
  const unsigned words = 1U << static_cast<unsigned>(last);
  const Tensor log_probs = negate(log_softmax(logits));
  labels = no_grad::unsqueeze(labels, last);
  const Tensor padding_mask = no_grad::equal(labels);
  labels = no_grad::clamp(labels);
  Tensor nll_loss = masked_fill_in_place(gather(log_probs, labels), padding_mask);
  Tensor smoothed = masked_fill_in_place(sum(log_probs, words, true, DType::kFloat32), padding_mask);
  Tensor denominator = items;
  if (!denominator.defined()) {
    denominator = no_grad::subtract(no_grad::sum(no_grad::to(padding_mask, DType::kInt64)));
  }
  const unsigned whole = (words << 1U) - 1;
  nll_loss = divide(sum(nll_loss, whole, false), denominator);
  {
    const Tensor total = sum(smoothed, whole, false);
    smoothed = divide(total, no_grad::multiply(denominator));
  }
  return add(multiply_scalar(nll_loss), multiply_scalar(smoothed));
}

}  // namespace memcalc
