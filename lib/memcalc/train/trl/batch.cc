#include "memcalc/train/trl/batch.h"

namespace memcalc {

namespace {

std::vector<BatchTensor> orpo_tensors(const RunSpec& run) {
  const Shape ids{run.batch_size, run.sequence_length};
  const Shape prompt{run.batch_size, run.sequence_length - run.training().completion_length};
  std::vector<BatchTensor> tensors;
  for (std::size_t place = kChosenIds; place <= kPromptMask; ++place) {
    tensors.push_back({nullptr, place < kPromptIds ? ids : prompt, DType::kInt64, place});
  }
  return tensors;
}

}  // namespace

std::vector<BatchTensor> answer_tensors(const RunSpec& run) {
  if (run.training().loop == Loop::kTrlOrpo) return orpo_tensors(run);
  const Shape ids{run.rows(), run.sequence_length}, samples{run.batch_size};
  std::vector<BatchTensor> tensors;
  for (const auto member : {&Batch::input_ids, &Batch::attention_mask, &Batch::completion_mask}) {
    tensors.push_back({member, ids, DType::kInt64});
  }
  const auto add = [&](std::size_t place, const Shape& shape, DType dtype) {
    tensors.push_back({nullptr, shape, dtype, place});
  };
  const bool precomputed = run.training().reference == Reference::kPrecomputed;
  if (run.trains_on_pairs()) {
    if (!precomputed) return tensors;
    add(kRefChosenLogps, samples, DType::kFloat32);
    add(kRefRejectedLogps, samples, DType::kFloat32);
    return tensors;
  }
  const bool has_kl = run.training().kto_loss == KtoLoss::kKto;
  for (const std::size_t place : {kKlInputIds, kKlAttentionMask, kKlCompletionMask}) {
    if (has_kl) add(place, ids, DType::kInt64);
  }
  add(kLabel, samples, DType::kBool);
  if (!precomputed) return tensors;
  add(kRefLogps, samples, DType::kFloat32);
  if (has_kl) add(kRefKlLogps, samples, DType::kFloat32);
  return tensors;
}

}  // namespace memcalc
