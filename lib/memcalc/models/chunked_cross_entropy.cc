// MIRRORS(trl, "trainer/sft_trainer.py", "1.14.2")
#include "memcalc/models/chunked_cross_entropy.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "memcalc/symbolic/checkpoint.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr std::int64_t kChunk = 256;  // _CHUNKED_LM_HEAD_CHUNK_SIZE

struct ChunkSums {
  Tensor loss, correct, entropy;
};

/// h.float() @ w.float().t(); from 1.13 on (h @ w.to(h.dtype).t()).float().
Tensor scores_of(const Tensor& h, const Tensor& w, const Tensor& b, bool in_their_type) {
  Tensor logits;
  if (in_their_type) {
    logits = to_dtype(matmul(h, t(to_dtype(w, h.dtype()))), DType::kFloat32);
  } else {
    const Tensor states = to_dtype(h, DType::kFloat32);
    logits = matmul(states, t(to_dtype(w, DType::kFloat32)));
  }
  if (b.defined()) logits = add(logits, to_dtype(b, DType::kFloat32));
  return logits;
}

/// _chunk. TRL reads logit_scale and final_logit_softcapping alone, from 1.11 on output_multiplier, too: logits_scaling
/// of Granite and MiniCPM 3 is left out. The packed form is that of 1.12.
ChunkSums chunk(const Tensor& h, const Tensor& w, const Tensor& b, const Tensor& labels, SftLossForm form,
                LogitsChange change) {
  const bool is_packed = form != SftLossForm::kCheckpointedChunks;
  ChunkSums sums;
  Tensor logits = scores_of(h, w, b, form == SftLossForm::kChunksWithoutFloat32Copies);
  const bool by_both = change == LogitsChange::kMultipliedSoftcapped;
  if ((by_both && is_packed) || change == LogitsChange::kMultiplied) logits = multiply_scalar(logits);
  if (by_both || change == LogitsChange::kSoftcapped) {
    logits = divide_scalar(logits);
    logits = tanh(logits);
    logits = multiply_scalar(logits);
  }
  Tensor log_p = log_softmax(to_dtype(logits, DType::kFloat32));  // autocast's, of products in 16 bits
  sums.loss = nll_loss_sum(log_p, labels);
  Tensor valid;
  if (is_packed) valid = no_grad::not_equal(labels);
  Tensor correct = no_grad::equal(no_grad::argmax_last(logits), labels);
  if (is_packed) correct = no_grad::bitwise_and(correct, valid);
  correct = no_grad::sum(correct);
  sums.correct = no_grad::to(std::move(correct), DType::kFloat32);
  Tensor entropy = exponential(log_p);
  entropy = multiply(entropy, log_p);
  entropy = sum(entropy, 0b10, false);
  if (is_packed) {
    entropy = negate(entropy);
    entropy = multiply(entropy, valid);
    sums.entropy = sum_all(entropy);
  } else {
    entropy = sum_all(entropy);
    sums.entropy = negate(entropy);
  }
  entropy.reset();
  drop(logits, log_p, valid);
  return sums;
}

/// The tokens that have a label, before the others: [rows, width] and [rows]; what is summed over the chunks; and the
/// function's other variables.
struct Tokens {
  Tensor hidden, labels, count, correct, entropy, padded, valid, order;
};

Tokens tokens_of(const Tensor& hidden_states, const Batch& batch, SftLossForm form) {
  const std::int64_t tokens = hidden_states.size(1) - 1;
  Tape& tape = hidden_states.tape();
  Tokens result;
  result.hidden = reshape(slice(hidden_states, 1, 0, tokens), {-1, hidden_states.size(2)});
  result.labels = reshape(slice(batch.labels, 1, 1, tokens), {-1});
  result.valid = no_grad::not_equal(result.labels);
  const bool is_packed = form != SftLossForm::kCheckpointedChunks;
  if (is_packed) {
    result.count = no_grad::sum(result.valid);
  } else {
    result.hidden = index_by_mask(result.hidden, 0, result.valid, batch.fused_head->targets);
    result.labels = index_by_mask(result.labels, 0, result.valid, batch.fused_head->targets);
  }
  result.correct = no_grad::zeros(tape, {}, DType::kFloat32);
  result.entropy = no_grad::zeros(tape, {}, DType::kFloat32);
  if (!is_packed) {
    result.count = no_grad::from_list(tape, {});
    return result;
  }
  result.order = sort(no_grad::to(result.valid, DType::kUInt8)).indices;
  result.hidden = index_rows(result.hidden, result.order);
  result.labels = index_rows(result.labels, result.order);
  // (n_valid_tensor / chunk_size).ceil().clamp(min=1).to(torch.int64) * chunk_size
  Tensor padded = no_grad::to(result.count, DType::kFloat32);
  padded = no_grad::ceil(padded);
  padded = no_grad::clamp(padded);
  padded = no_grad::to(padded, DType::kInt64);
  result.padded = no_grad::multiply(padded);
  read_on_host(result.padded);  // range(0, n_padded, chunk_size)
  return result;
}

}  // namespace

void chunked_forward(const Linear& lm_head, const Tensor& hidden_states, const Batch& batch, ModelOutput& output,
                     LogitsChange change) {
  Tape& tape = hidden_states.tape();
  const SftLossForm form = tape.behaviors.sft_loss;
  Tokens tokens = tokens_of(hidden_states, batch, form);
  Tensor loss = no_grad::zeros(tape, {}, DType::kFloat32);
  const std::int64_t rows = tokens.hidden.size(0), targets = batch.fused_head->targets;
  const std::int64_t end = form == SftLossForm::kCheckpointedChunks ? targets : std::max<std::int64_t>(targets, 1);
  Tensor h, labels;
  ChunkSums last;
  for (std::int64_t start = 0; start < end; start += kChunk) {
    const std::int64_t length = std::min(kChunk, rows - start);
    h = slice(tokens.hidden, 0, start, length);
    labels = slice(tokens.labels, 0, start, length);
    auto sums = std::make_shared<ChunkSums>();
    const std::weak_ptr<ChunkSums> asked = sums;  // of the first run
    const auto region = [asked, form, change](const KeptTensors& kept) {
      ChunkSums made = chunk(kept[0], kept[1], kept.size() > 3 ? kept[2] : Tensor(), kept.back(), form, change);
      if (const auto first = asked.lock()) {
        first->correct = std::move(made.correct);
        first->entropy = std::move(made.entropy);
      }
      return std::move(made.loss);
    };
    KeptTensors arguments{h, lm_head.weight};
    if (lm_head.bias.defined()) arguments.push_back(lm_head.bias);
    arguments.push_back(labels);
    if (tape.modes.grad_enabled) {
      const std::size_t count = arguments.size();
      last.loss = run_checkpointed(std::move(arguments), count, region);
    } else {
      last.loss = region(arguments);
    }
    last.correct = std::move(sums->correct);
    last.entropy = std::move(sums->entropy);
    loss = add(loss, last.loss);
    tokens.correct = add(tokens.correct, last.correct);
    tokens.entropy = add(tokens.entropy, last.entropy);
  }
  Tensor count = batch.number_of_items;
  if (!count.defined()) {
    count = form == SftLossForm::kCheckpointedChunks ? tokens.count : no_grad::clamp(tokens.count);
  }
  output.loss = divide(std::move(loss), count);
  output.fused.label_mask = std::move(tokens.count);
  output.fused.entropy = std::move(tokens.entropy);
  output.fused.is_top1 = std::move(tokens.correct);
  drop(last.loss, last.correct, last.entropy, h, labels, count);
}

}  // namespace memcalc
