// Rows of the operator table that layers are made of: products, convolutions, norms, attention, pooling, losses.
#include <array>

#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/attention.h"
#include "memcalc/symbolic/ops/batch_norm.h"
#include "memcalc/symbolic/ops/conv.h"
#include "memcalc/symbolic/ops/conv1d.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/embedding.h"
#include "memcalc/symbolic/ops/grouped_mm.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/pool.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {
namespace {

constexpr Operator kMseLoss{"aten::mse_loss"}, kMseLossBackward{"MseLossBackward0"};
constexpr Operator kMseLossBackwardOp{"aten::mse_loss_backward"};

void linear_row(RecordedCall& call) { call.returns(linear(call.tensor(0), call.tensor(1), call.tensor_or_none(2))); }
void matmul_row(RecordedCall& call) { call.returns(matmul(call.tensor(0), call.tensor(1))); }
void bmm_row(RecordedCall& call) { call.returns(batched_product(call.tensor(0), call.tensor(1))); }
void addmm_row(RecordedCall& call) { call.returns(addmm(call.tensor(0), call.tensor(1), call.tensor(2))); }

/// One number for all dimensions.
std::int64_t same_of(const RecordedCall& call, int i, std::int64_t otherwise) {
  if (!call.has(i)) return otherwise;
  const std::vector<std::int64_t> sizes = call.integers(i);
  for (const std::int64_t size : sizes) {
    if (size != sizes.front()) call.refuse("sizes that differ between height and width");
  }
  return sizes.empty() ? otherwise : sizes.front();
}

std::int64_t padding_of(const RecordedCall& call, int i, const Tensor& weight) {
  const std::string_view text = call.text_or(i, "");
  if (text == "valid") return 0;
  if (text == "same") return (weight.size(-1) - 1) / 2;
  return same_of(call, i, 0);
}

void conv2d_row(RecordedCall& call) {
  const Tensor& weight = call.tensor(1);
  if (same_of(call, 5, 1) != 1) call.refuse("a dilation");
  const ConvolutionOptions options{
      .stride = same_of(call, 3, 1), .padding = padding_of(call, 4, weight), .groups = call.integer_or(6, 1)};
  call.returns(conv2d(call.tensor(0), weight, call.tensor_or_none(2), options));
}

void conv1d_row(RecordedCall& call) {
  const Tensor& weight = call.tensor(1);
  if (same_of(call, 5, 1) != 1) call.refuse("a dilation");
  call.returns(
      conv1d(call.tensor(0), weight, call.tensor_or_none(2), same_of(call, 3, 1), padding_of(call, 4, weight)));
}

void embedding_row(RecordedCall& call) { call.returns(embedding(call.tensor(1), call.tensor(0))); }

void layer_norm_row(RecordedCall& call) {
  if (call.has(1) && call.integers(1).size() != 1) call.refuse("several dimensions");
  if (!call.has(2) || !call.has(3)) call.refuse("no weight or no bias");
  call.returns(layer_norm(call.tensor(0), call.tensor(2), call.tensor(3)));
}

void rms_norm_row(RecordedCall& call) {
  if (!call.has(2)) call.refuse("no weight");
  call.returns(rms_norm(call.tensor(0), call.tensor(2)));
}

void group_norm_row(RecordedCall& call) {
  if (!call.has(2) || !call.has(3)) call.refuse("no weight or no bias");
  call.returns(group_norm(call.tensor(0), call.tensor(2), call.tensor(3), call.integer(1)));
}

void batch_norm_row(RecordedCall& call) {
  if (!call.has(3) || !call.has(4)) call.refuse("no weight or no bias");
  call.returns(batch_norm(call.tensor(0), call.tensor(3), call.tensor(4)));
}

void attention_row(RecordedCall& call) {
  const SdpaOptions options{.dropout = call.tape.modes.training ? call.number_or(4, 0) : 0,
                            .causal = call.boolean_or(5, false),
                            .grouped_heads = call.boolean_or(7, false)};
  const Tensor &query = call.tensor(0), &key = call.tensor(1), &value = call.tensor(2);
  if (query.rank() != 4) call.refuse("another number of dimensions than 4");
  call.returns(scaled_dot_product_attention(query, key, value, call.tensor_or_none(3), options));
}

void cross_entropy_row(RecordedCall& call) {
  const Tensor& logits = call.tensor(0);
  if (call.number_or(7, 0) != 0) call.refuse("label smoothing");
  if (call.text_or(6, "mean") == "none") call.refuse("a loss for each sample");
  call.returns(cross_entropy(logits, call.tensor(1)));
}

/// mse_loss_backward: one kernel for each side.
void mse_backward(BackwardCall& call) {  // saved: self, target
  for (int i = 0; i < 2; ++i) {
    if (call.needs(i)) call.set(i, pointwise(kMseLossBackwardOp, {&call.saved(0), &call.saved(1)}, 2));
  }
}

void mse_row(RecordedCall& call) {
  const Tensor &x = call.tensor(0), &target = call.tensor(1);
  Tape& tape = call.tape;
  const Tensor* inputs[] = {&x, &target};
  Node* node = tape.autograd.record(kMseLossBackward, mse_backward, inputs, 2);
  if (node != nullptr) {
    tape.autograd.save(*node, x);
    tape.autograd.save(*node, target);
  }
  Tensor result = pointwise(kMseLoss, {&x, &target}, 2);
  if (call.text_or(4, "mean") != "none") result = reduced(kMseLoss, result, (1U << result.rank()) - 1, false);
  tape.autograd.set_history(node, result);
  call.returns(std::move(result));
}

void max_pool2d_row(RecordedCall& call) {
  const std::int64_t kernel = same_of(call, 1, 1);
  if (same_of(call, 4, 1) != 1) call.refuse("a dilation");
  call.returns(max_pool2d(call.tensor(0), kernel, same_of(call, 2, kernel), same_of(call, 3, 0)));
}

void avg_pool2d_row(RecordedCall& call) {
  const std::int64_t kernel = same_of(call, 1, 1);
  call.returns(avg_pool2d(call.tensor(0), kernel, same_of(call, 2, kernel), same_of(call, 3, 0)));
}

void adaptive_avg_pool2d_row(RecordedCall& call) {
  call.returns(adaptive_avg_pool2d(call.tensor(0), same_of(call, 1, 1)));
}

void adaptive_avg_pool1d_row(RecordedCall& call) {
  call.returns(adaptive_avg_pool1d(call.tensor(0), same_of(call, 1, 1)));
}

void grouped_mm_row(RecordedCall& call) { call.returns(grouped_mm(call.tensor(0), call.tensor(1), call.tensor(2))); }

constexpr OperatorRow kRows[] = {
    {"linear", "input weight bias", linear_row},
    {"matmul", "input other", matmul_row},
    {"mm", "input mat2", matmul_row},
    {"bmm", "input mat2", bmm_row},
    {"addmm", "input mat1 mat2 beta alpha", addmm_row},
    {"conv2d", "input weight bias stride padding dilation groups", conv2d_row},
    {"conv1d", "input weight bias stride padding dilation groups", conv1d_row},
    {"embedding", "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse", embedding_row},
    {"layer_norm", "input normalized_shape weight bias eps cudnn_enable", layer_norm_row},
    {"rms_norm", "input normalized_shape weight eps", rms_norm_row},
    {"group_norm", "input num_groups weight bias eps cudnn_enabled", group_norm_row},
    {"batch_norm", "input running_mean running_var weight bias training momentum eps", batch_norm_row},
    {"scaled_dot_product_attention", "query key value attn_mask dropout_p is_causal scale enable_gqa", attention_row},
    {"cross_entropy", "input target weight size_average ignore_index reduce reduction label_smoothing",
     cross_entropy_row},
    {"mse_loss", "input target size_average reduce reduction weight", mse_row, AutocastList::kFloat32},
    {"max_pool2d", "input kernel_size stride padding dilation ceil_mode return_indices", max_pool2d_row},
    {"avg_pool2d", "input kernel_size stride padding ceil_mode count_include_pad divisor_override", avg_pool2d_row},
    {"adaptive_avg_pool2d", "input output_size", adaptive_avg_pool2d_row},
    {"adaptive_avg_pool1d", "input output_size", adaptive_avg_pool1d_row},
    {"grouped_mm", "mat_a mat_b offs bias out_dtype", grouped_mm_row},
    {"_grouped_mm", "mat_a mat_b offs bias out_dtype", grouped_mm_row},
};

}  // namespace

std::span<const OperatorRow> layer_rows() { return kRows; }

}  // namespace memcalc
