// MIRRORS(sentence_transformers, "base/losses/gradcache.py", "6.2.0")
// MIRRORS(sentence_transformers, "base/losses/merged_forward.py", "6.2.0")
// MIRRORS(sentence_transformers, "cross_encoder/losses/binary_cross_entropy.py", "6.2.0")
// MIRRORS(sentence_transformers, "sentence_transformer/modules/pooling.py", "6.2.0")
// MIRRORS(sentence_transformers, "util/similarity.py", "6.2.0")
#include "memcalc/train/sentence_transformers.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/vectors.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/data/texts.h"

namespace memcalc {

namespace {

/// What a tokenizer makes of a column of texts.
constexpr std::array<Tensor Batch::*, 3> kFeatures = {&Batch::input_ids, &Batch::token_type_ids,
                                                      &Batch::attention_mask};

/// torch.cat([x], dim)
Tensor cat_one(const Tensor& x, int dim) { return concatenate(std::array{x}, dim); }

/// sentence_transformer/modules/pooling.py, Pooling._forward_padded of the mode "mean", and the cat behind it.
/// Until 6.1 the mask was written out as large as the embeddings.
Tensor pooled(const Tensor& token_embeddings, const Tensor& attention_mask) {
  Tensor mean_pooled;
  {
    Tensor mask = to_dtype(unsqueeze(attention_mask, 2), token_embeddings.dtype());
    Tensor mean_sum = sum(token_embeddings * mask, 0b10, false);
    Tensor mean_mask = clamp(sum(mask, 0b10, false));
    mean_pooled = divide(mean_sum, mean_mask);
    drop(mask, mean_sum, mean_mask);
  }
  return cat_one(mean_pooled, 1);
}

using Texts = std::vector<std::vector<std::int32_t>>;

/// The columns of a batch, without copies.
std::vector<Batch> columns_of(const Batch& inputs, const Texts& texts) {
  std::vector<Batch> columns(texts.size());
  const std::size_t of_each = inputs.others.size() / columns.size();
  for (std::size_t i = 0; i < inputs.others.size(); ++i) {
    // Without token types a column has its ids and its mask.
    const std::size_t feature = of_each == kFeatures.size() || i % of_each == 0 ? i % of_each : 2;
    const std::vector<std::int32_t>& column = texts[i / of_each];
    columns[i / of_each].*kFeatures[feature] = inputs.others[i];
    columns[i / of_each].padded = width_of(column, 0, static_cast<std::int64_t>(column.size())).padded;
  }
  return columns;
}

/// base/losses/merged_forward.py, merge_feature_batches: where columns differ in width, F.pad copies each.
Batch merged(const std::vector<Batch>& columns, std::size_t first) {
  std::int64_t longest = 0;
  bool differ = false;
  for (std::size_t i = first; i < columns.size(); ++i) {
    const std::int64_t width = columns[i].input_ids.size(1);
    differ = differ || (i > first && width != longest);
    longest = std::max(longest, width);
  }
  Batch all;
  all.padded = differ;
  for (std::size_t i = first; i < columns.size(); ++i) all.padded = all.padded || columns[i].padded;
  std::vector<Tensor> parts;
  for (Tensor Batch::*const feature : kFeatures) {
    std::vector<Tensor> values;
    for (std::size_t i = first; i < columns.size(); ++i) {
      const Tensor& value = columns[i].*feature;
      if (!value.defined()) continue;
      values.push_back(differ ? pad_to(value, {value.size(0), longest}) : value);
    }
    if (values.empty()) continue;
    parts = std::move(values);
    all.*feature = concatenate(parts, 0);
  }
  for (Tensor& each : parts) each.reset();
  return all;
}

/// gradcache.py, _create_minibatch of texts that are padded: it looks where the padding at the end begins, and leaves
/// it out.
Batch mini_batch(const Batch& column, const std::vector<std::int32_t>& texts, std::int64_t begin, std::int64_t rows) {
  const ColumnWidth width = width_of(texts, begin, rows);
  Batch part;
  part.padded = width.padded;
  Tape& tape = column.input_ids.tape();
  {
    Tensor active = no_grad::to(no_grad::slice(column.attention_mask, 0, begin, rows), DType::kBool);
    Tensor active_columns = no_grad::any(active, 0);
    no_grad::any(active_columns).reset();
    read_on_host(tape, aten::kAny);
    no_grad::max(nonzero(active_columns, width.longest)).reset();
    read_on_host(tape);
    for (Tensor Batch::*const feature : kFeatures) {
      if (!(column.*feature).defined()) continue;
      part.*feature = no_grad::slice(column.*feature, 0, begin, rows);
      if (width.longest < column.input_ids.size(1)) part.*feature = no_grad::slice(part.*feature, 1, 0, width.longest);
    }
    drop(active, active_columns);
  }
  return part;
}

/// util/similarity.py, cos_sim
Tensor cos_sim(const Tensor& a, const Tensor& b) {
  Tensor a_norm = normalized_rows(a);
  Tensor b_norm = normalized_rows(b);
  Tensor similarities = matmul(a_norm, transpose(b_norm, 0, 1));
  drop(a_norm, b_norm);
  return similarities;
}

/// Variables of one turn of the loss, which are let go when the next one's take their places.
struct Scores {
  Tensor rows, queries, docs, similarities, positive_scores, scores, log_z;
  void clear() { drop(rows, queries, docs, similarities, positive_scores, scores, log_z); }
};

/// -(positive_scores - log_z) of the queries at `places`: direction "query_to_doc", a joint softmax, without hardness.
Tensor ranking_losses(Tape& tape, const Tensor& places, const Tensor& queries, const Tensor& positives,
                      const Tensor& docs, Scores& turn) {
  turn.rows = no_grad::arange(tape, places.size(0));
  turn.queries = index_rows(queries, places);
  turn.docs = index_rows(positives, places);
  turn.similarities = cos_sim(turn.queries, docs);
  turn.similarities = multiply_scalar(turn.similarities);
  const std::array<std::pair<int, Tensor>, 2> own = {std::pair(0, turn.rows), std::pair(1, places)};
  turn.positive_scores = index(turn.similarities, own);
  turn.scores = cat_one(turn.similarities, 1);
  turn.log_z = log_sum_exp(turn.scores, 0b10, false);
  return negate(subtract(turn.positive_scores, turn.log_z));
}

/// losses/multiple_negatives_ranking.py. `is_wrapped`: by DistributedDataParallel, whose forward passes a copy of the
/// features on (_to_kwargs): what the model adds to them dies with its answer.
Tensor ranking_loss(Tape& tape, const std::vector<Batch>& columns, const SentenceLoss::CallModel& call_model,
                    bool is_wrapped) {
  std::vector<ModelOutput> outputs;  // what the features keep
  std::vector<Tensor> embeddings;
  const auto embed = [&](const Batch& features) {
    outputs.push_back(call_model(features));
    Tensor embedding = outputs.back().others[1];
    if (is_wrapped) outputs.clear();
    return embedding;
  };
  embeddings.push_back(embed(columns[0]));
  if (columns.size() == 2) {
    embeddings.push_back(embed(columns[1]));
  } else {
    const auto candidates = static_cast<std::int64_t>(columns.size()) - 1;
    Batch together = merged(columns, 1);
    ModelOutput output = call_model(together);
    const Tensor all = output.others[1];
    for (Tensor& each : unbind(reshape(all, {candidates, -1, all.size(1)}), 0)) embeddings.push_back(std::move(each));
  }
  const std::vector<Tensor> docs(embeddings.begin() + 1, embeddings.end());
  Tensor docs_all = concatenate(docs, 0);
  Tensor places = no_grad::arange(tape, embeddings[0].size(0));
  Scores turn;
  Tensor loss = mean(ranking_losses(tape, places, embeddings[0], embeddings[1], docs_all, turn), 1, false);
  turn.clear();
  drop(docs_all, places);
  return loss;
}

/// Rows of each mini-batch.
std::vector<std::int64_t> mini_batches(std::int64_t rows, std::int64_t size) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t begin = 0; begin < rows; begin += size) sizes.push_back(std::min(size, rows - begin));
  return sizes;
}

/// losses/cached_multiple_negatives_ranking.py, calculate_loss; with its backward where gradients are on.
Tensor chunked_ranking_loss(Tape& tape, const std::vector<std::vector<Tensor>>& embeddings, std::int64_t size) {
  const Tensor queries = concatenate(embeddings[0], 0);
  std::vector<Tensor> docs;
  for (std::size_t i = 1; i < embeddings.size(); ++i) docs.push_back(concatenate(embeddings[i], 0));
  Tensor docs_all = concatenate(docs, 0);
  Tensor places = no_grad::arange(tape, queries.size(0));
  std::vector<Tensor> losses;
  Scores turn;
  Tensor per_sample;
  std::int64_t begin = 0;
  for (const std::int64_t rows : mini_batches(queries.size(0), size)) {
    const Tensor local = no_grad::slice(places, 0, begin, rows);
    per_sample = ranking_losses(tape, local, queries, docs[0], docs_all, turn);
    Tensor loss = divide_scalar(multiply_scalar(mean(per_sample, 1, false)));
    if (tape.modes.grad_enabled) {
      backward_from(loss);
      loss = tape.detach(loss);
    }
    losses.push_back(std::move(loss));
    begin += rows;
  }
  Tensor total = add_scalar(losses.front());  // sum() starts from 0
  for (std::size_t i = 1; i < losses.size(); ++i) total = total + losses[i];
  per_sample.reset();
  turn.clear();
  drop(docs_all, places);
  return total;
}

/// cross_encoder/losses/binary_cross_entropy.py: it tokenizes the pairs and moves them to the card.
Tensor binary_cross_entropy_loss(Tape& tape, const Batch& inputs, const BatchShape& shape, bool has_token_types,
                                 const SentenceLoss::CallModel& call_model) {
  const Tensor& labels = inputs.others[0];
  record_host_work(tape, HostWork::kTextToken, shape.tokens);
  Batch features;
  features.padded = shape.padded;
  for (Tensor Batch::*const feature : kFeatures) {
    if (feature == &Batch::token_type_ids && !has_token_types) continue;
    features.*feature = moved_to_card(tape, {labels.size(0), shape.columns}, DType::kInt64);
  }
  ModelOutput outputs = call_model(features);
  Tensor logits = view(outputs.logits, {-1});
  Tensor loss = binary_cross_entropy_with_logits(logits, labels);
  drop(logits);
  return loss;
}

}  // namespace

std::vector<BatchTensor> sentence_transformers_batch(const Model& model, const RunSpec& run) {
  return sentence_transformers_batch(model, run, texts_shape_of(run));
}

std::vector<BatchTensor> sentence_transformers_batch(const Model& model, const RunSpec& run, const BatchShape& batch) {
  std::vector<BatchTensor> tensors;
  const auto add = [&](const Shape& shape, DType dtype) { tensors.push_back({nullptr, shape, dtype, tensors.size()}); };
  if (run.training().loop == Loop::kCrossEncoder) {
    add({batch.rows}, DType::kFloat32);
    return tensors;
  }
  const int features = model.takes_token_types ? 3 : 2;
  for (const std::vector<std::int32_t>& column : batch.texts) {
    const std::int64_t longest = width_of(column, 0, batch.rows).longest;
    for (int i = 0; i < features; ++i) add({batch.rows, longest}, DType::kInt64);
  }
  return tensors;
}

ModelOutput sentence_transformers_forward(Model& model, const RunSpec& run, const Batch& features) {
  ModelOutput output = model.forward(features);
  if (run.training().loop == Loop::kCrossEncoder) {
    output.others.push_back(output.logits);
    output.cached = 1;  // features["scores"] stays as it is, beside its float32 copy
    return output;
  }
  output.others.push_back(pooled(output.others[0], features.attention_mask));
  return output;
}

Tensor SentenceLoss::compute(Tape& tape, const RunSpec& run, const Batch& inputs, const BatchShape& shape,
                             CallModel call_model) {
  const Training& training = run.training();
  if (training.loop == Loop::kCrossEncoder) {
    return binary_cross_entropy_loss(tape, inputs, shape, has_token_types_, call_model);
  }
  const SentencePairs& pairs = training.sentences;
  if (pairs.loss == ContrastiveLoss::kMnrl) {
    return ranking_loss(tape, columns_of(inputs, shape.texts), call_model, run.parallel.is_parallel());
  }
  columns_ = columns_of(inputs, shape.texts);
  texts_ = shape.texts;
  call_model_ = std::move(call_model);
  return cached(tape, pairs);
}

void SentenceLoss::clear() {
  columns_.clear();
  gradients_.clear();
  call_model_ = nullptr;
}

SentenceLoss::Columns SentenceLoss::embeddings_without_gradients(Tape& tape, const SentencePairs& pairs) {
  const NoGrad no_grad(tape.modes);
  Columns embeddings;
  Tensor last;  // reps_mb
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const Batch& column = columns_[i];
    std::vector<Tensor>& of_column = embeddings.emplace_back();
    std::int64_t begin = 0;
    for (const std::int64_t rows : mini_batches(column.input_ids.size(0), pairs.mini_batch_size)) {
      {
        const Batch features = mini_batch(column, texts_[i], begin, rows);
        last = call_model_(features).others[1];
      }
      of_column.push_back(tape.detach(last));
      begin += rows;
    }
  }
  return embeddings;
}

/// gradcache.py, _backward_hook: each mini-batch is embedded once more, now with gradients.
void SentenceLoss::embed_again(Tape& tape, const SentencePairs& pairs, const Tensor& gradient) {
  const EnableGrad enable_grad(tape.modes);
  Tensor embeddings, surrogate;  // variables of the last turn
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::int64_t begin = 0;
    const std::vector<std::int64_t> sizes = mini_batches(columns_[i].input_ids.size(0), pairs.mini_batch_size);
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      {
        const Batch features = mini_batch(columns_[i], texts_[i], begin, sizes[k]);
        embeddings = call_model_(features).others[1];
      }
      surrogate = multiply(dot(view(embeddings, {-1}), view(gradients_[i][k], {-1})), gradient);
      backward_from(surrogate);
      begin += sizes[k];
    }
  }
}

Tensor SentenceLoss::cached(Tape& tape, const SentencePairs& pairs) {
  Columns embeddings = embeddings_without_gradients(tape, pairs);
  if (!tape.modes.grad_enabled) {
    Tensor loss = chunked_ranking_loss(tape, embeddings, pairs.mini_batch_size);
    clear();
    return loss;
  }
  for (auto& of_column : embeddings) {
    for (Tensor& each : of_column) tape.autograd.require_gradient(each);
  }
  const Tensor value = chunked_ranking_loss(tape, embeddings, pairs.mini_batch_size);
  Tensor loss = tape.detach(value);
  tape.autograd.require_gradient(loss);
  for (const auto& of_column : embeddings) {
    auto& kept = gradients_.emplace_back();
    for (const Tensor& each : of_column) kept.push_back(each.impl()->grad);
  }
  const TensorImpl* const leaf = loss.impl();
  tape.autograd.before_backward_of(loss, [this, &tape, &pairs, leaf] { embed_again(tape, pairs, leaf->grad); });
  return loss;
}

}  // namespace memcalc
