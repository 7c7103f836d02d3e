// Rows of the operator table that scan or order along a dimension, or find statistics: what families do not call.
// Sources: aten/src/ATen/native/ReduceOps.cpp, cuda/ScanKernels.cpp, cuda/Sort.cpp, and
// torch/csrc/autograd/FunctionsManual.cpp of torch 2.11.
// MIRRORS(torch, "torch/csrc/autograd/FunctionsManual.cpp", "2.11.0")
// MIRRORS(torch, "cuda/Sort.cpp", "2.11.0")
#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/sort_rows.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {
namespace {

Tensor pw(const Operator& op, std::initializer_list<const Tensor*> inputs) { return pointwise(op, inputs, 1); }
Tensor mask(const Operator& op, std::initializer_list<const Tensor*> inputs) {
  return pointwise(op, inputs, 1, DType::kBool);
}

// --- running products, maxima and sums of exponentials
// ----------------------------------------------------------------

/// w.flip(dim).scan(dim).flip(dim)
Tensor from_the_end(const Tensor& x, const Operator& scan) {
  const Tensor flipped = moved_like(x, aten::kFlip), scanned = moved_like(flipped, scan);
  return moved_like(scanned, aten::kFlip);
}

/// cumprod_backward where no value is zero, for which the host asks.
void cumprod_backward(BackwardCall& call) {  // saved: self, result
  const Tensor gradient = to_dtype(call.gradient(), call.saved(0).dtype());
  const Tensor product = pw(aten::kMul, {&call.saved(1), &gradient});
  const Tensor zero = mask(aten::kEq, {&call.saved(0)});
  { const Tensor any = call.tape.empty({}, DType::kBool, aten::kAny); }
  call.tape.kernels.synchronize(aten::kItem);
  const Tensor summed = from_the_end(product, aten::kCumsum);
  call.set(0, pw(aten::kDiv, {&summed, &call.saved(0)}));
}

void cumprod_row(RecordedCall& call) {  // input dim dtype
  const Tensor& x = call.tensor(0);
  const DType own = is_floating(x.dtype()) ? autocast_result(aten::kCumprod, x) : DType::kInt64;
  const DType dtype = call.dtype(2).value_or(own);
  Node* node = record(aten::kCumprod, cumprod_backward, {&x}, {&x});
  Tensor result = filled(call.tape, x.shape(), dtype, aten::kCumprod);
  if (dtype != x.dtype()) {
    const Tensor converted = filled(call.tape, x.shape(), dtype, aten::kToCopy);
  }
  call.returns(finish(node, std::move(result), true));
}

void scattered_backward(BackwardCall& call) {  // saved: self, indices; zeros, to which the gradient is added
  const Tensor& self = call.saved(0);
  call.set(0, filled(call.tape, self.shape(), call.gradient().dtype(), aten::kZeros));
}

void cumulative_extremum_row(RecordedCall& call) {  // input dim
  const Tensor& x = call.tensor(0);
  Node* node = record(aten::kCummax, scattered_backward, {&x}, {&x});
  Tensor values = finish(node, filled(call.tape, x.shape(), x.dtype(), aten::kCummax));
  Tensor places = filled(call.tape, x.shape(), DType::kInt64, aten::kCummax);
  if (node != nullptr) call.tape.autograd.save(*node, places);
  call.returns(std::move(values));
  call.returns(std::move(places));
}

/// logcumsumexp_backward: in logarithms, of the gradient's positive and negative parts.
void logcumsumexp_backward(BackwardCall& call) {  // saved: self, result
  const Tensor& gradient = call.gradient();
  const Tensor least = call.tape.empty({}, gradient.dtype(), aten::kScalarTensor);
  Tensor logarithm;
  {
    const Tensor size = pw(aten::kAbs, {&gradient});
    logarithm = pw(aten::kLog, {&size});
  }
  const auto part = [&] {
    const Tensor of_sign = mask(aten::kGt, {&gradient});
    return pointwise(aten::kWhere, {&of_sign, &logarithm}, 1, gradient.dtype());
  };
  const Tensor positive = part(), negative = part();
  const auto of_part = [&](const Tensor& x) {
    const Tensor difference = pw(aten::kSub, {&x, &call.saved(1)});
    const Tensor summed = from_the_end(difference, aten::kLogcumsumexp);
    const Tensor moved = pw(aten::kAdd, {&summed, &call.saved(0)});
    return pw(aten::kExp, {&moved});
  };
  const Tensor gained = of_part(positive), lost = of_part(negative);
  call.set(0, pw(aten::kSub, {&gained, &lost}));
}

void logcumsumexp_row(RecordedCall& call) {  // input dim
  const Tensor& x = call.tensor(0);
  Node* node = record(aten::kLogcumsumexp, logcumsumexp_backward, {&x}, {&x});
  call.returns(finish(node, filled(call.tape, x.shape(), x.dtype(), aten::kLogcumsumexp), true));
}

// --- order
// ------------------------------------------------------------------------------------------------------------

/// value_selecting_reduction_backward: zeros, into which the gradient is scattered.
void selected_backward(BackwardCall& call) {  // saved: indices
  const Shape& input = call.payload<InputShape>().shape;
  call.set(0, filled(call.tape, input, call.gradient().dtype(), aten::kZeros));
}

Selection selected(const AtenOperator& op, const Tensor& x, const Shape& shape) {
  Node* node = record(op, selected_backward, {&x});
  if (node != nullptr) node->payload.set(InputShape{x.shape()});
  Selection found;
  Tape& tape = x.tape();
  found.values = finish(node, tape.empty(shape, x.dtype(), op));
  found.indices = tape.empty(shape, DType::kInt64, op);
  if (node != nullptr) tape.autograd.save(*node, found.indices);
  tape.kernels.add(op, OperatorClass::kMovement, x.dtype(), 0, 3.0 * static_cast<double>(x.bytes()));
  return found;
}

void return_both(RecordedCall& call, Selection found) {
  call.returns(std::move(found.values));
  call.returns(std::move(found.indices));
}

/// Values and places of a sort along rows: cuda/Sort.cpp sorts short rows in place, a block each; their places are a
/// range that is copied to each row first.
Selection sorted(const Tensor& x, int dim) {
  constexpr std::int64_t kSmallSort = 4096;  // should_use_small_sort
  if (x.rank() == 1 && !is_followed(x)) return sort(x);
  Selection found = selected(aten::kSortOf, x, x.shape());
  const std::int64_t length = x.rank() == 0 ? 1 : x.size(dim);
  if (length <= kSmallSort) {
    const Tensor range = x.tape().empty({length}, DType::kInt64, aten::kArange);
  } else {
    (void)sort_rows(x, length);
  }
  return found;
}

void sort_row(RecordedCall& call) {  // input dim descending stable
  const Tensor& x = call.tensor(0);
  return_both(call, sorted(x, call.dimension(1, x.rank(), -1)));
}

void argsort_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  call.returns(sorted(x, call.dimension(1, x.rank(), -1)).indices);
}

void msort_row(RecordedCall& call) { call.returns(sorted(call.tensor(0), 0).values); }

Shape without(Shape shape, int dim, bool keep) {
  shape[dim] = 1;
  if (keep) return shape;
  for (int i = dim; i + 1 < shape.rank; ++i) shape[i] = shape[i + 1];
  --shape.rank;
  return shape;
}

void kthvalue_row(RecordedCall& call) {  // input k dim keepdim
  const Tensor& x = call.tensor(0);
  const Shape shape = without(x.shape(), call.dimension(2, x.rank(), -1), call.boolean_or(3, false));
  return_both(call, selected(aten::kKthvalue, x, shape));
}

/// evenly_distribute_backward: equal values share the gradient; values that are no numbers are equal to one.
void extremum_of_all_backward(BackwardCall& call) {  // saved: self, result
  const Tensor& self = call.saved(0);
  const Tensor equal = mask(aten::kEq, {&self, &call.saved(1)}), is_nan = mask(aten::kIsnan, {&call.saved(1)});
  const Tensor chosen = mask(aten::kLogical, {&self});
  const Tensor count = reduced(aten::kSum, chosen, (1U << chosen.rank()) - 1, false, DType::kInt64);
  const Tensor share = pointwise(aten::kDiv, {&call.gradient(), &count}, 1, call.gradient().dtype());
  call.set(0, pw(aten::kMul, {&share, &chosen}));
}

/// cuda/Sorting.cpp, median_impl of everything: what was sorted is looked at in the middle, and at its end for NaN.
Tensor median_of_all(const Tensor& x) {
  Node* node = record(aten::kMedian, extremum_of_all_backward, {&x}, {&x});
  Tensor result;
  {
    const NoGrad no_grad(x.tape().modes);
    const Tensor values =
        sorted(x.rank() == 1 ? x : view(x.is_contiguous() ? x : contiguous(x), {x.elements()}), 0).values;
    const Tensor last = select(values, 0);
    const Tensor is_nan = mask(aten::kIsnan, {&last});
    result = pointwise(aten::kWhere, {&is_nan, &last}, 1, x.dtype());
  }
  return finish(node, std::move(result), true);
}

void median_row(RecordedCall& call) {  // input dim keepdim
  const Tensor& x = call.tensor(0);
  if (!call.has(1)) return call.returns(median_of_all(x));
  const Shape shape = without(x.shape(), call.dimension(1, x.rank(), -1), call.boolean_or(2, false));
  return_both(call, selected(aten::kMedian, x, shape));
}

void nanmedian_row(RecordedCall& call) {
  if (!call.has(1)) call.refuse("everything");
  median_row(call);
}

void topk_row(RecordedCall& call) {  // input k dim largest sorted
  const Tensor& x = call.tensor(0);
  const int dim = call.dimension(2, x.rank(), -1);
  if (dim == x.rank() - 1) return return_both(call, topk(x, call.integer(1)));
  Shape shape = x.shape();
  shape[dim] = call.integer(1);
  return_both(call, selected(aten::kTopk, x, shape));
}

// --- extrema of everything, spread and mean
// ---------------------------------------------------------------------------

/// x.max(): a scalar; x.max(dim): values and places; torch.max(x, y): element by element.
template <const AtenOperator& of_two>
void extremum_row(RecordedCall& call) {  // input dim keepdim
  const Tensor& x = call.tensor(0);
  if (call.is_tensor(1)) return call.returns(extremum(of_two, x, call.tensor(1)));
  if (call.has(1)) {
    return return_both(call, max_along(x, call.dimension(1, x.rank(), -1), call.boolean_or(2, false)));
  }
  Node* node = record(aten::kMaxOfAll, extremum_of_all_backward, {&x}, {&x});
  call.returns(finish(node, reduced(aten::kAmax, x, (1U << x.rank()) - 1, false), true));
}

struct SpreadPayload {
  unsigned dropped = 0;  // the dimensions that were not kept, a bit each
  unsigned reduced = 0;
  bool is_root = false;
};

Tensor with_dropped(Tensor gradient, unsigned dropped) {
  for (int dim = 0; dim < kMaxDims; ++dim) {
    if ((dropped >> dim & 1) != 0) gradient = unsqueeze(std::move(gradient), dim);
  }
  return gradient;
}

/// var_mean_backward, std_mean_backward: of the spread as var_backward, std_backward; of the mean expand and divide.
void spread_backward(BackwardCall& call) {  // saved: self, then the root
  const auto& [dropped, dims, is_root] = call.payload<SpreadPayload>();
  const Tensor& self = call.saved(0);
  Tensor of_spread, of_mean;
  if (call.gradient(0).defined()) {
    Tensor gradient = call.gradient(0);
    if (is_root) {
      const Tensor twice = pw(aten::kMul, {&call.saved(1)});
      gradient = pw(aten::kDiv, {&gradient, &twice});
      const Tensor zero = mask(aten::kEq, {&call.saved(1)});
    }
    gradient = with_dropped(std::move(gradient), dropped);
    const Tensor average = reduced(aten::kMean, self, dims, true), centred = pw(aten::kSub, {&self, &average});
    const Tensor scaled = pw(aten::kMul, {&gradient});
    of_spread = pw(aten::kMul, {&scaled, &centred});
  }
  if (call.gradient(1).defined()) {
    const Tensor expanded = expand(with_dropped(call.gradient(1), dropped), self.shape());
    of_mean = pw(aten::kDiv, {&expanded});
  }
  if (!of_mean.defined()) return call.set(0, std::move(of_spread));
  if (!of_spread.defined()) return call.set(0, std::move(of_mean));
  call.set(0, pw(aten::kAdd, {&of_spread, &of_mean}));
}

template <bool is_root>
void spread_row(RecordedCall& call) {  // input dim unbiased correction keepdim
  const Tensor& x = call.tensor(0);
  unsigned dims = 0;
  if (call.has(1)) {
    for (const std::int64_t dim : call.integers(1)) dims |= 1U << (dim < 0 ? dim + x.rank() : dim);
  }
  if (dims == 0) dims = (1U << x.rank()) - 1;
  const bool keep = call.boolean_or(4, false);
  Node* node = record(is_root ? aten::kStdMean : aten::kVarMeanOf, spread_backward, {&x}, {&x});
  if (node != nullptr) node->payload.set(SpreadPayload{keep ? 0 : dims, dims, is_root});
  Tensor spread = finish(node, reduced(aten::kVar, x, dims, keep), is_root);
  call.returns(std::move(spread));
  call.returns(finish(node, call.tape.empty(call.results.front().shape(), x.dtype(), aten::kMean)));
}

constexpr OperatorRow kRows[] = {
    {"cumprod", "input dim dtype", cumprod_row},
    {"cummax", "input dim", cumulative_extremum_row},
    {"cummin", "input dim", cumulative_extremum_row},
    {"logcumsumexp", "input dim", logcumsumexp_row},
    {"sort", "input dim descending stable", sort_row},
    {"argsort", "input dim descending stable", argsort_row},
    {"msort", "input", msort_row},
    {"kthvalue", "input k dim keepdim", kthvalue_row},
    {"median", "input dim keepdim", median_row},
    {"nanmedian", "input dim keepdim", nanmedian_row},
    {"topk", "input k dim largest sorted", topk_row},
    {"max", "input dim keepdim", extremum_row<aten::kMaximum>},
    {"min", "input dim keepdim", extremum_row<aten::kMinimum>},
    {"std_mean", "input dim unbiased correction keepdim", spread_row<true>},
    {"var_mean", "input dim unbiased correction keepdim", spread_row<false>},
};

}  // namespace

std::span<const OperatorRow> scan_rows() { return kRows; }

}  // namespace memcalc
