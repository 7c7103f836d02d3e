#include "memcalc/train/trl/batch.h"

namespace memcalc {

namespace {

std::vector<BatchTensor> orpo_tensors(const BatchShape& batch) {
  const Shape chosen{batch.rows, batch.columns}, rejected{batch.rows, batch.answers.other_columns};
  const Shape prompt{batch.rows, batch.answers.prompt_columns};
  std::vector<BatchTensor> tensors;
  for (std::size_t place = kChosenIds; place <= kPromptMask; ++place) {
    const Shape& shape = place < kRejectedIds ? chosen : place < kPromptIds ? rejected : prompt;
    tensors.push_back({nullptr, shape, DType::kInt64, place});
  }
  return tensors;
}

}  // namespace

BatchShape answers_shape_of(const RunSpec& run) {
  const std::int64_t answer = run.training().completion_length;
  const bool pairs = run.trains_on_pairs();
  BatchShape shape{.rows = run.batch_size, .columns = run.sequence_length, .longest = run.sequence_length};
  shape.sequences = pairs ? 2 * shape.rows : shape.rows;
  shape.tokens = shape.sequences * shape.columns;
  shape.valid_labels = shape.sequences * answer;
  // Of KTO's samples half are desirable.
  shape.answers.first_samples = pairs ? shape.rows : (shape.rows + 1) / 2;
  shape.answers.first_labels = shape.answers.first_samples * answer;
  shape.answers.prompt_columns = run.sequence_length - answer;
  shape.answers.other_columns = run.sequence_length;
  shape.answers.other_labels = shape.rows * answer;
  return shape;
}

std::vector<BatchTensor> answer_tensors(const RunSpec& run, const BatchShape& shape) {
  if (run.training().loop == Loop::kTrlOrpo) return orpo_tensors(shape);
  const Shape ids{run.trains_on_pairs() ? 2 * shape.rows : shape.rows, shape.columns}, samples{shape.rows};
  const Shape others{shape.rows, shape.answers.other_columns};
  std::vector<BatchTensor> tensors;
  for (const auto member : {&Batch::input_ids, &Batch::attention_mask, &Batch::completion_mask}) {
    tensors.push_back({member, ids, DType::kInt64});
  }
  const auto add = [&](std::size_t place, const Shape& size, DType dtype) {
    tensors.push_back({nullptr, size, dtype, place});
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
    if (has_kl) add(place, others, DType::kInt64);
  }
  add(kLabel, samples, DType::kBool);
  if (!precomputed) return tensors;
  add(kRefLogps, samples, DType::kFloat32);
  if (has_kl) add(kRefKlLogps, samples, DType::kFloat32);
  return tensors;
}

}  // namespace memcalc
