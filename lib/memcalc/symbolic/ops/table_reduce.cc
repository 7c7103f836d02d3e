// Rows of the operator table that reduce, scan and select. Derivatives: tools/autograd/derivatives.yaml and
// torch/csrc/autograd/FunctionsManual.cpp of torch 2.11.
// MIRRORS(torch, "ReduceOps.cpp", "2.11.0")
// MIRRORS(torch, "torch/csrc/autograd/FunctionsManual.cpp", "2.11.0")
#include <algorithm>
#include <array>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/amax.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/nanmean.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/scan.h"
#include "memcalc/symbolic/ops/variance.h"
#include "memcalc/symbolic/ops/vectors.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {
namespace {

struct ReductionPayload {
  unsigned dropped = 0;  // the dimensions that were not kept, a bit each
};

Tensor pw(const Operator& op, std::initializer_list<const Tensor*> inputs) { return pointwise(op, inputs, 1); }

/// The dimensions of slot `i`, a bit each; all where it is None or an empty list.
unsigned dimensions(const RecordedCall& call, int i, const Tensor& x) {
  unsigned reduced = 0;
  if (call.has(i)) {
    for (const std::int64_t dim : call.integers(i)) {
      const std::int64_t from_front = dim < 0 ? dim + x.rank() : dim;
      if (from_front < 0 || from_front >= kMaxDims) call.refuse("a dimension that the tensor does not have");
      reduced |= 1U << from_front;
    }
  }
  return reduced != 0 ? reduced : (1U << x.rank()) - 1;
}

Tensor with_dropped(Tensor gradient, unsigned dropped) {
  for (int dim = 0; dim < kMaxDims; ++dim) {
    if ((dropped >> dim & 1) != 0) gradient = unsqueeze(std::move(gradient), dim);
  }
  return gradient;
}

void sum_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  std::optional<DType> dtype = call.dtype(3);
  if (!dtype && !is_floating(x.dtype())) dtype = DType::kInt64;
  call.returns(sum(x, dimensions(call, 1, x), call.boolean_or(2, false), dtype));
}

void mean_row(RecordedCall& call) {
  const Tensor x = call.dtype(3) ? to_dtype(call.tensor(0), *call.dtype(3)) : call.tensor(0);
  call.returns(mean(x, dimensions(call, 1, x), call.boolean_or(2, false)));
}

/// amax, amin: saves self and result; the gradient is shared among equal values.
void extremum_backward(BackwardCall& call) {
  const unsigned dropped = call.payload<ReductionPayload>().dropped;
  Tensor gradient = with_dropped(call.gradient(), dropped);
  Tensor result = with_dropped(call.saved(1), dropped);
  Tensor equal = pointwise(aten::kEq, {&call.saved(0), &result}, 1, DType::kBool);
  Tensor count = pointwise(aten::kSum, {&result}, 1, DType::kInt64);
  (void)to_dtype(equal, DType::kInt64);  // which sum reads (native/ReduceOpsUtils.h, make_reduction)
  Tensor share = pw(aten::kDiv, {&gradient, &count});
  call.set(0, pw(aten::kMul, {&share, &equal}));
}

Tensor extremum(const AtenOperator& op, const Tensor& x, unsigned dims, bool keep_dims) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(op, extremum_backward, inputs, 1);
  if (node != nullptr) {
    node->payload.set(ReductionPayload{.dropped = keep_dims ? 0 : dims});
    tape.autograd.save(*node, x);
  }
  Tensor result = reduced(op, x, dims, keep_dims);
  tape.autograd.set_history(node, result);
  if (node != nullptr) tape.autograd.save(*node, result);
  return result;
}

template <const AtenOperator& op>
void extremum_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  call.returns(extremum(op, x, dimensions(call, 1, x), call.boolean_or(2, false)));
}

void argmax_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (call.has(1) && call.dimension(1, x.rank(), -1) == x.rank() - 1 && !call.boolean_or(2, false)) {
    return call.returns(argmax_last(x));
  }
  call.returns(reduced(aten::kArgmax, x, dimensions(call, 1, x), call.boolean_or(2, false), DType::kInt64));
}

void any_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  call.returns(reduced(aten::kAny, x, dimensions(call, 1, x), call.boolean_or(2, false), DType::kBool));
}

void all_true_row(RecordedCall& call) {  // of a bool tensor: .all()
  const Tensor& x = call.tensor(0);
  call.returns(reduced(aten::kAny, x, (1U << x.rank()) - 1, false, DType::kBool));
}

/// prod_backward of a dimension where no value is zero, for which the host asks: grad * (result / input).
void prod_backward(BackwardCall& call) {  // saved: self, result
  const unsigned dropped = call.payload<ReductionPayload>().dropped;
  const Tensor gradient = with_dropped(call.gradient(), dropped), result = with_dropped(call.saved(1), dropped);
  const Tensor& self = call.saved(0);
  unsigned dims = 0;
  for (int dim = 0; dim < self.rank(); ++dim) dims |= result.size(dim) != self.size(dim) ? 1U << dim : 0;
  const Tensor zero = pointwise(aten::kEq, {&self}, 1, DType::kBool);
  const Tensor zeros = sum(zero, dims != 0 ? dims : 1, true, DType::kInt64);
  { const Tensor all = no_grad::sum(zeros); }
  call.tape.kernels.synchronize(aten::kItem);
  const Tensor quotient = pw(aten::kDiv, {&result, &self});
  call.set(0, pw(aten::kMul, {&gradient, &quotient}));
}

void prod_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  const bool keeps = call.boolean_or(2, false);
  const unsigned dims = dimensions(call, 1, x);
  if (is_followed(x) && !call.has(1)) call.refuse("everything, differentiated");
  const DType dtype =
      call.dtype(3).value_or(is_floating(x.dtype()) ? autocast_result(aten::kProdOf, x) : DType::kInt64);
  Node* node = record(aten::kProdOf, prod_backward, {&x}, {&x});
  if (node != nullptr) node->payload.set(ReductionPayload{.dropped = keeps ? 0 : dims});
  call.returns(finish(node, reduced(aten::kProd, x, dims, keeps, dtype), true));
}

void nansum_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  call.returns(nansum(x, dimensions(call, 1, x), call.boolean_or(2, false), call.dtype(3)));
}

void count_nonzero_row(RecordedCall& call) {  // SummaryOps: (input != 0).sum(dims)
  const Tensor& x = call.tensor(0);
  const NoGrad no_grad(call.tape.modes);
  const Tensor other = pointwise(aten::kNe, {&x}, 1, DType::kBool);
  call.returns(sum(other, dimensions(call, 1, x), false, DType::kInt64));
}

/// trace_backward: zeros, filled at the diagonal's places.
void trace_backward(BackwardCall& call) {
  const Shape& input = call.payload<InputShape>().shape;
  Tensor result = filled(call.tape, input, call.gradient().dtype(), aten::kZeros);
  { const Tensor places = filled(call.tape, {std::min(input[0], input[1])}, DType::kInt64, aten::kArange); }
  call.set(0, std::move(result));
}

void trace_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  Node* node = record(aten::kTrace, trace_backward, {&x});
  if (node != nullptr) node->payload.set(InputShape{x.shape()});
  const Tensor diagonal = call.tape.alias(x, {std::min(x.size(0), x.size(1))}, {x.strides()[0] + x.strides()[1]}, true);
  const NoGrad no_grad(call.tape.modes);
  call.returns(finish(node, reduced(aten::kSum, diagonal, 1, false)));
}

template <Tensor (*function)(const Tensor& x, unsigned reduced, bool keep_dims)>
void variance_row(RecordedCall& call) {  // input dim unbiased correction keepdim
  const Tensor& x = call.tensor(0);
  call.returns(function(x, dimensions(call, 1, x), call.boolean_or(4, false)));
}

void norm_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  const int place = call.has(6) ? 6 : 1;  // torch.linalg.norm() calls it ord
  const double order = call.is_number(place) ? call.number_or(place, 2) : 2;
  if (order == 1) return call.returns(one_norm(x, dimensions(call, 2, x), call.boolean_or(3, false), call.dtype(4)));
  if (order != 2) {
    return call.returns(norm_of_order(x, order, dimensions(call, 2, x), call.boolean_or(3, false), call.dtype(4)));
  }
  call.returns(vector_norm(x, dimensions(call, 2, x), call.boolean_or(3, false), call.dtype(4)));
}

void cumsum_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  const DType dtype = is_floating(x.dtype()) ? autocast_result(aten::kCumsum, x) : DType::kInt64;
  call.returns(cumulative_sum(x, call.dimension(1, x.rank(), 0), call.dtype(2).value_or(dtype)));
}

/// Not along the last dimension: the same memory, which is all that is modelled of it.
void softmax_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  std::optional<DType> dtype = call.dtype(3);
  if (!dtype && call.slot(2).kind == BoundArgument::Kind::kDType) dtype = call.dtype(2);
  call.returns(dtype ? softmax(x, *dtype) : softmax(x));
}

void log_softmax_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  std::optional<DType> dtype = call.dtype(3);
  if (!dtype && call.slot(2).kind == BoundArgument::Kind::kDType) dtype = call.dtype(2);
  call.returns(log_softmax(x, dtype.value_or(autocast_result(aten::kLogSoftmax, x))));
}

void log_sum_exp_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  call.returns(log_sum_exp(x, dimensions(call, 1, x), call.boolean_or(2, false)));
}

/// ReduceOps.cpp, diff: what stands before is joined to it for a while, then neighbours are subtracted.
void diff_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (call.integer_or(1, 1) != 1 || call.has(4)) call.refuse("another order, or something appended");
  if (x.requires_grad() && call.tape.modes.grad_enabled) call.refuse("what is differentiated");
  const int dim = call.dimension(2, x.rank(), -1);
  const Tensor joined = call.has(3) ? cat(call.tensor(3), x, dim) : x;
  const std::int64_t count = std::max<std::int64_t>(joined.size(dim) - 1, 0);
  const Tensor later = slice(joined, dim, 1, count);
  const Tensor earlier = slice(joined, dim, 0, count);
  call.returns(pw(aten::kSub, {&later, &earlier}));
}

void gather_row(RecordedCall& call) { call.returns(gather(call.tensor(0), call.tensor(2))); }

void index_select_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  call.returns(index_select(x, call.dimension(1, x.rank(), 0), call.tensor(2)));
}

/// What the host waits for: .item(), bool(tensor). A fake tensor's tolist() reads its elements one by one (unbind, and
/// item() of each), a real one's is one copy: what is read while the card has nothing else to do is that.
void synchronize_row(RecordedCall& call) {
  const Kernel* last = call.tape.kernels.last();
  if (last != nullptr && last->kind == KernelKind::kSynchronize) return;
  call.tape.kernels.synchronize(aten::kNonzero);
}

constexpr OperatorRow kRows[] = {
    {"sum", "input dim keepdim dtype", sum_row},
    {"mean", "input dim keepdim dtype", mean_row},
    {"amax", "input dim keepdim", extremum_row<aten::kAmax>},
    {"amin", "input dim keepdim", extremum_row<aten::kAmin>},
    {"argmax", "input dim keepdim", argmax_row},
    {"argmin", "input dim keepdim", argmax_row},
    {"any", "input dim keepdim", any_row},
    {"all", "input dim keepdim", any_row},
    {"_is_all_true", "input", all_true_row},
    {"prod", "input dim keepdim dtype", prod_row},
    {"nansum", "input dim keepdim dtype", nansum_row},
    {"count_nonzero", "input dim", count_nonzero_row},
    {"trace", "input", trace_row},
    {"var", "input dim unbiased correction keepdim", variance_row<variance>},
    {"std", "input dim unbiased correction keepdim", variance_row<standard_deviation>},
    {"norm", "input p dim keepdim dtype out ord", norm_row},
    {"vector_norm", "input ord dim keepdim dtype", norm_row},
    {"cumsum", "input dim dtype", cumsum_row},
    {"softmax", "input dim _stacklevel dtype", softmax_row},
    {"log_softmax", "input dim _stacklevel dtype", log_softmax_row},
    {"logsumexp", "input dim keepdim", log_sum_exp_row},
    {"diff", "input n dim prepend append", diff_row},
    {"gather", "input dim index", gather_row},
    {"index_select", "input dim index", index_select_row},
    {"item", "input", synchronize_row},
    {"tolist", "input", synchronize_row},
    {"__bool__", "input", synchronize_row},
    {"__int__", "input", synchronize_row},
    {"__float__", "input", synchronize_row},
    {"__index__", "input", synchronize_row},
};

}  // namespace

std::span<const OperatorRow> reduction_rows() { return kRows; }

Tensor amax(const Tensor& x, unsigned dims, bool keep_dims) { return extremum(aten::kAmax, x, dims, keep_dims); }

}  // namespace memcalc
