// The trainers of sentence-transformers 6.0, which run in transformers' Trainer: what a batch is, what the model is
// beside transformers' own (pooling), and their losses. Covered by tests/measured/jobs_test.py.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/data/collator.h"
#include "memcalc/train/loop.h"

namespace memcalc {

/// The columns of a bi-encoder one after the other, each as its tokenizer gives it; of a cross-encoder the labels
/// alone, since its loss is what tokenizes the pairs. All in Batch::others.
[[nodiscard]] std::vector<BatchTensor> sentence_transformers_batch(const Model& model, const RunSpec& run);
/// The same of texts of these lengths (BatchShape::texts).
[[nodiscard]] std::vector<BatchTensor> sentence_transformers_batch(const Model& model, const RunSpec& run,
                                                                   const BatchShape& shape);

/// SentenceTransformer.forward: the encoder and its pooling by the mean; `others` are token and sentence embeddings.
/// CrossEncoder.forward: the classifier; `others` are the scores as its features keep them.
[[nodiscard]] ModelOutput sentence_transformers_forward(Model& model, const RunSpec& run, const Batch& features);

/// The loss of a run, with what it keeps from one pass to the other.
class SentenceLoss {
 public:
  explicit SentenceLoss(const Model& model) : has_token_types_(model.takes_token_types) {}

  /// Calls the model as the Trainer has wrapped it.
  using CallModel = std::function<ModelOutput(const Batch& features)>;

  /// BaseTrainer.compute_loss. `shape`: of the batch, with its texts.
  [[nodiscard]] Tensor compute(Tape& tape, const RunSpec& run, const Batch& inputs, const BatchShape& shape,
                               CallModel call_model);
  /// The loss is let go, and with it the hook of a cached one.
  void clear();

 private:
  using Columns = std::vector<std::vector<Tensor>>;  // of each column what belongs to its mini-batches
  using Texts = std::vector<std::vector<std::int32_t>>;

  [[nodiscard]] Tensor cached(Tape& tape, const SentencePairs& pairs);
  [[nodiscard]] Columns embeddings_without_gradients(Tape& tape, const SentencePairs& pairs);
  void embed_again(Tape& tape, const SentencePairs& pairs, const Tensor& gradient);

  bool has_token_types_;
  CallModel call_model_;
  std::vector<Batch> columns_;
  Texts texts_;        // of these
  Columns gradients_;  // of the embeddings
};

}  // namespace memcalc
