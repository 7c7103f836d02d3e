// MIRRORS(trl, "trainer/utils.py", "1.16.0")
#include "memcalc/symbolic/ops/chunked_log_probs.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/module_hooks.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kFunction{"ChunkedLogProbFunctionBackward"};
constexpr Operator kForwardKernel{"trl::_forward_kernel"}, kBackwardKernel{"trl::_backward_kernel"};
constexpr std::int64_t kTokens = 4096;       // TOKEN_CHUNK_SIZE
constexpr std::int64_t kVocabulary = 32768;  // trainer/utils.py, _CHUNKED_LOGPROB_CHUNK_SIZE

struct Payload {
  DType compute_dtype = DType::kFloat32;
  bool has_bias = false;
};

/// One tile of the projection: `tokens` rows by `words` columns of the vocabulary.
struct Tile {
  std::int64_t first_token, tokens, first_word, words;
};

/// Python's loop variables: what the products read, in their type. Views, or copies that live until the next is made.
struct Chunks {
  Tensor hidden, weight;
};

/// Chunks of tokens that are executed. From the second on all ask for the same but the last one, so of many one stands
/// for the others: work must not grow with the batch.
constexpr std::int64_t kExecutedChunks = 6;

/// Calls with every tile, all words of one chunk of tokens first.
void for_each_tile(const Tensor& hidden, const Tensor& weight, DType dtype, Chunks& chunks,
                   const std::function<void(const Tile&)>& visit) {
  const std::int64_t count = ceil_div(hidden.size(0), kTokens);
  KernelLog& kernels = hidden.tape().kernels;
  for (std::int64_t chunk = 0; chunk < count; ++chunk) {
    std::int64_t stands_for = 1;
    if (count > kExecutedChunks && chunk == 1) {
      stands_for = count - kExecutedChunks + 1;
      chunk += stands_for - 1;
    }
    const Scoped repeated(kernels.repeats, kernels.repeats * stands_for);
    const std::int64_t token = chunk * kTokens;
    const std::int64_t tokens = std::min(kTokens, hidden.size(0) - token);
    chunks.hidden = to_dtype(slice(hidden, 0, token, tokens), dtype);
    for (std::int64_t word = 0; word < weight.size(0); word += kVocabulary) {
      const std::int64_t words = std::min(kVocabulary, weight.size(0) - word);
      chunks.weight = to_dtype(slice(weight, 0, word, words), dtype);
      // torch.mm(…, out=tile)
      hidden.tape().memory.use_cublas(false);
      hidden.tape().kernels.product(aten::kMm, dtype, 1, tokens, words, weight.size(1), KernelKind::kMatrixProduct,
                                    Transposed::kSecond);
      visit({token, tokens, word, words});
    }
  }
}

Tensor zeros(Tape& tape, const Shape& shape) {
  Tensor made = tape.empty(shape, DType::kFloat32, aten::kZeros);
  tape.kernels.add(aten::kZeros, OperatorClass::kMovement, DType::kFloat32, 0, static_cast<double>(made.bytes()));
  return made;
}

/// tile.add_(bias[start:end].to(dtype)), then the Triton kernel that reads the tile, and writes it in backward.
void fold(Tape& tape, const Operator& op, DType dtype, const Tensor& bias, const Tile& tile, bool writes) {
  const auto elements = static_cast<double>(tile.tokens) * static_cast<double>(tile.words);
  const double bytes = elements * static_cast<double>(size_of(dtype));
  if (bias.defined()) {
    (void)to_dtype(slice(bias, 0, tile.first_word, tile.words), dtype);
    tape.kernels.add(aten::kAddInPlace, OperatorClass::kElementwise, dtype, elements, 2 * bytes);
  }
  tape.kernels.add(op, OperatorClass::kElementwise, dtype, 8 * elements, writes ? 2 * bytes : bytes);
}

void log_probs_backward(
    BackwardCall& call) {  // saved: hidden, weight, bias where there is one, targets, log_z, entropy
  Tape& tape = call.tape;
  const Payload payload = call.payload<Payload>();
  const DType dtype = payload.compute_dtype;  // clang 14: no lambda takes a structured binding
  const bool has_bias = payload.has_bias;
  const Tensor& hidden = call.saved(0);
  // Where a wrapper gathers what is read, it does so once more (maybe_gather_lm_head_ctx).
  const DirectRead read_weight(tape.modes.module_hooks, call.saved(1));
  const DirectRead read_bias(tape.modes.module_hooks, has_bias ? call.saved(2) : Tensor());
  const Tensor &weight = read_weight.tensor(), &bias = read_bias.tensor();
  const bool of_hidden = call.needs(0), of_weight = call.needs(1), of_bias = has_bias && call.needs(2);
  // "Always accumulate in fp32, even when the inputs are not"
  Tensor hidden_gradient, weight_gradient, bias_gradient;
  if (of_hidden) hidden_gradient = zeros(tape, hidden.shape());
  if (of_weight) weight_gradient = zeros(tape, weight.shape());
  if (of_bias) bias_gradient = zeros(tape, bias.shape());
  Tensor tiles = tape.empty({std::min(hidden.size(0), kTokens), kVocabulary}, dtype, aten::kEmpty);
  Chunks chunks;
  for_each_tile(hidden, weight, dtype, chunks, [&](const Tile& tile) {
    fold(tape, kBackwardKernel, dtype, bias, tile, true);
    // torch.addmm(…, out_dtype=torch.float32, out=…): onto what is there
    if (of_hidden) tape.kernels.product(aten::kAddmm, dtype, 1, tile.tokens, weight.size(1), tile.words);
    if (of_weight) {
      tape.kernels.product(aten::kAddmm, dtype, 1, tile.words, weight.size(1), tile.tokens, KernelKind::kMatrixProduct,
                           Transposed::kFirst);
    }
    if (of_bias) (void)zeros(tape, {tile.words});  // tile.sum(dim=0, dtype=torch.float32)
  });
  if (of_hidden) call.set(0, to_dtype(hidden_gradient, hidden.dtype()));
  if (of_weight) call.set(1, to_dtype(weight_gradient, weight.dtype()));
  if (of_bias) call.set(2, to_dtype(bias_gradient, bias.dtype()));
  drop(hidden_gradient, weight_gradient, bias_gradient, chunks.hidden, chunks.weight, tiles);
}

/// forward(): what it returns, and log_z, which it saves.
ChunkedLogProbs computed(const Tensor& hidden, const Tensor& weight, const Tensor& bias, LogProbOutputs outputs,
                         DType dtype, Tensor& log_z) {
  Tape& tape = hidden.tape();
  const std::int64_t tokens = hidden.size(0);
  const auto numbers = [&] { return no_grad::zeros(tape, {tokens}, DType::kFloat32); };
  Tensor running_max = no_grad::full(tape, {tokens}, DType::kFloat32);
  Tensor sum_exp = numbers(), x_sum_exp = numbers(), sq_sum_exp = numbers(), z_sum = numbers();
  Tensor max_before_target = no_grad::full(tape, {tokens}, DType::kFloat32);
  Tensor target_logit = numbers();
  Tensor tiles = tape.empty({std::min(tokens, kTokens), kVocabulary}, dtype, aten::kEmpty);
  Chunks chunks;
  for_each_tile(hidden, weight, dtype, chunks, [&](const Tile& tile) {
    chunks.weight.reset();
    fold(tape, kForwardKernel, dtype, bias, tile, false);
  });
  ChunkedLogProbs made;
  log_z = no_grad::add(running_max, no_grad::logarithm(sum_exp));
  made.log_probs = no_grad::subtract(target_logit, log_z);
  if (outputs.entropy) made.entropy = no_grad::subtract(log_z, no_grad::divide(x_sum_exp, sum_exp));
  if (outputs.log_sum_sq_probs) {
    made.log_sum_sq_probs =
        no_grad::subtract(no_grad::logarithm(sq_sum_exp), no_grad::multiply(no_grad::logarithm(sum_exp)));
  }
  if (outputs.mean_logits) made.mean_logits = no_grad::divide(z_sum);
  if (outputs.is_top1) {
    made.is_top1 = no_grad::bitwise_and(no_grad::greater_equal(target_logit, running_max),
                                        no_grad::greater(target_logit, max_before_target));
  }
  drop(running_max, sum_exp, x_sum_exp, sq_sum_exp, z_sum, max_before_target, target_logit, chunks.hidden, tiles);
  return made;
}

}  // namespace

ChunkedLogProbs chunked_log_probs(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                                  LogProbOutputs outputs) {
  Tape& tape = hidden.tape();
  const DType dtype = tape.modes.autocast.dtype.value_or(hidden.dtype());
  const Tensor* inputs[] = {&hidden, &weight, &bias};
  Node* node = tape.autograd.record(kFunction, log_probs_backward, inputs, bias.defined() ? 3 : 2);
  Tensor log_z;
  ChunkedLogProbs made;
  {
    const NoGrad no_grad(tape.modes);
    made = computed(hidden, weight, bias, outputs, dtype, log_z);
  }
  tape.autograd.set_history(node, made.log_probs);
  if (made.entropy.defined()) tape.autograd.set_history(node, made.entropy);
  if (node == nullptr) return made;
  node->payload.set(Payload{dtype, bias.defined()});
  tape.autograd.save(*node, hidden);
  tape.autograd.save(*node, weight);
  if (bias.defined()) tape.autograd.save(*node, bias);
  tape.autograd.save(*node, targets);
  tape.autograd.save(*node, log_z);
  tape.autograd.save(*node, made.entropy.defined() ? made.entropy : log_z);
  return made;
}

}  // namespace memcalc
