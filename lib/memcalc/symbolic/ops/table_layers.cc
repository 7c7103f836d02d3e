// Rows of the operator table that layers are made of: products, attention, losses.
// MIRRORS(torch, "LossCTC.cpp", "2.11.0")
#include <array>
#include <string>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/attention.h"
#include "memcalc/symbolic/ops/einsum.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/embedding.h"
#include "memcalc/symbolic/ops/grouped_mm.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {
namespace {

void linear_row(RecordedCall& call) { call.returns(linear(call.tensor(0), call.tensor(1), call.tensor_or_none(2))); }
void matmul_row(RecordedCall& call) { call.returns(matmul(call.tensor(0), call.tensor(1))); }
void bmm_row(RecordedCall& call) { call.returns(batched_product(call.tensor(0), call.tensor(1))); }
void addmm_row(RecordedCall& call) { call.returns(addmm(call.tensor(0), call.tensor(1), call.tensor(2))); }

/// Linear.cpp, einsum: more than two operands are contracted from the left, where no other path is asked for.
void contract_from_left(const RecordedCall& call, std::string& equation, std::vector<Tensor>& operands) {
  std::erase(equation, ' ');
  const std::size_t arrow = equation.find("->");
  if (arrow == std::string::npos || equation.find('.') != std::string::npos) call.refuse("the equation " + equation);
  while (operands.size() > 2) {
    const std::size_t first = equation.find(','), second = equation.find(',', first + 1);
    if (second == std::string::npos) call.refuse("the equation " + equation);
    const std::string rest = equation.substr(second);
    std::string kept;
    for (const char letter : equation.substr(0, second)) {
      const bool is_read = letter != ',' && rest.find(letter) != std::string::npos;
      if (is_read && kept.find(letter) == std::string::npos) kept += letter;
    }
    const Tensor product = einsum(equation.substr(0, second) + "->" + kept, std::array{operands[0], operands[1]});
    if (!product.defined()) call.refuse("the equation " + equation);
    operands.erase(operands.begin());
    operands.front() = product;
    equation = kept + rest;
  }
}

/// torch.einsum(equation, a, b) or torch.einsum(equation, [a, b]).
void einsum_row(RecordedCall& call) {
  if (call.slot(0).kind != BoundArgument::Kind::kText) call.refuse("operands by number");
  std::vector<Tensor> operands = call.tensors(1);
  std::string equation(call.text_or(0, ""));
  if (operands.size() > 2) contract_from_left(call, equation, operands);
  const Tensor result = einsum(equation, operands);
  if (!result.defined()) call.refuse("the equation " + std::string(call.text_or(0, "")));
  call.returns(result);
}

void embedding_row(RecordedCall& call) {
  refuse_sparse_gradient(call, call.tensor(1), 6);
  call.returns(embedding(call.tensor(1), call.tensor(0)));
}

void attention_row(RecordedCall& call) {
  SdpaOptions options{.dropout = call.tape.modes.training ? call.number_or(4, 0) : 0,
                      .causal = call.boolean_or(5, false),
                      .grouped_heads = call.boolean_or(7, false)};
  const Tensor &query = call.tensor(0), &key = call.tensor(1), &value = call.tensor(2);
  const Tensor& mask = call.tensor_or_none(3);
  if (query.rank() == 3) {  // sdp_utils_cpp.h, check_tensor_shapes: no fused kernel takes three
    options.broadcast_heads = true;
    const auto stacked = [](const Tensor& x) { return unsqueeze(x, 0); };
    const Tensor bias = mask.defined() && mask.rank() == 3 ? stacked(mask) : mask;
    return call.returns(
        squeeze(scaled_dot_product_attention(stacked(query), stacked(key), stacked(value), bias, options), 0));
  }
  if (query.rank() != 4) call.refuse("another number of dimensions than 4");
  options.broadcast_heads = !options.grouped_heads && query.size(1) != key.size(1);
  call.returns(scaled_dot_product_attention(query, key, value, mask, options));
}

/// Labels one after the other in a vector: as wav2vec2 passes them. How long each is stands in a tensor; all are taken
/// to be alike, as where none is padded. Lengths on the card are read by the host.
void ctc_loss_row(RecordedCall& call) {  // log_probs targets input_lengths target_lengths blank reduction zero_infinity
  const Tensor log_probs = autocast(aten::kCtcLoss, call.tensor(0));
  const Tensor& targets = call.tensor(1);
  if (log_probs.rank() != 3) call.refuse("one sample");
  for (const int lengths : {2, 3}) {
    if (call.is_tensor(lengths) && !RecordedCall::on_host(call.tensor(lengths))) {
      call.tape.kernels.synchronize(aten::kCtcLossFunction);
    }
  }
  const std::int64_t label = targets.rank() == 2 ? targets.size(1) : targets.elements() / log_probs.size(1);
  Tensor losses = ctc_loss(log_probs, targets, label);
  if (call.boolean_or(6, false)) {  // zero_infinity: at::where(res == infinity, at::zeros({}, res.options()), res)
    const Tensor zero = call.tape.empty({}, losses.dtype(), aten::kZeros);
    const Tensor infinite = pointwise(aten::kEq, {&losses}, 1, DType::kBool);
    losses = where(infinite, losses);
  }
  const std::string_view reduction = call.text_or(5, "mean");
  if (reduction == "none") return call.returns(std::move(losses));
  if (reduction == "sum") return call.returns(sum(losses, 1, false));
  // LossCTC.cpp: each by the length of its label, which is brought to the card and kept from 0.
  const Tensor lengths = call.tape.empty(losses.shape(), DType::kInt64, aten::kCtcLossFunction);
  const Tensor divisors = call.tape.empty(losses.shape(), losses.dtype(), aten::kCtcLossFunction);
  call.returns(mean(divide(losses, divisors), 1, false));
}

void grouped_mm_row(RecordedCall& call) { call.returns(grouped_mm(call.tensor(0), call.tensor(1), call.tensor(2))); }

constexpr OperatorRow kRows[] = {
    {"linear", "input weight bias", linear_row},
    {"matmul", "input other", matmul_row},
    {"mm", "input mat2", matmul_row},
    {"bmm", "input mat2", bmm_row},
    {"addmm", "input mat1 mat2 beta alpha", addmm_row},
    {"einsum", "equation *operands", einsum_row},
    {"embedding", "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse", embedding_row},
    {"scaled_dot_product_attention", "query key value attn_mask dropout_p is_causal scale enable_gqa", attention_row},
    {"ctc_loss", "log_probs targets input_lengths target_lengths blank reduction zero_infinity", ctc_loss_row},
    {"grouped_mm", "mat_a mat_b offs bias out_dtype", grouped_mm_row},
    {"_grouped_mm", "mat_a mat_b offs bias out_dtype", grouped_mm_row},
    {"grouped_mm_fallback", "input weight offs",
     [](RecordedCall& call) { call.returns(grouped_mm_fallback(call.tensor(0), call.tensor(1), call.tensor(2))); }},
};

}  // namespace

std::span<const OperatorRow> layer_rows() { return kRows; }

}  // namespace memcalc
