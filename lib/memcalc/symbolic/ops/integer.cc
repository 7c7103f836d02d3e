#include "memcalc/symbolic/ops/integer.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/scan.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc::no_grad {

namespace {

constexpr Operator kArange{"aten::arange"}, kZeros{"aten::zeros"}, kOnes{"aten::ones"}, kFull{"aten::full"};
constexpr Operator kNewZeros{"aten::new_zeros"}, kNewOnes{"aten::new_ones"}, kScalarTensor{"aten::scalar_tensor"};
constexpr Operator kEmptyLike{"aten::empty_like"}, kZerosLike{"aten::zeros_like"}, kOnesLike{"aten::ones_like"};
constexpr Operator kFullLike{"aten::full_like"}, kToCopy{"aten::_to_copy"};
constexpr Operator kAdd{"aten::add"}, kSub{"aten::sub"}, kMul{"aten::mul"}, kDiv{"aten::div"}, kPow{"aten::pow"};
constexpr Operator kFloorDivide{"aten::floor_divide"}, kRemainder{"aten::remainder"}, kMinimum{"aten::minimum"};
constexpr Operator kClamp{"aten::clamp"}, kNeg{"aten::neg"}, kAbs{"aten::abs"}, kReciprocal{"aten::reciprocal"};
constexpr Operator kExp{"aten::exp"}, kLog{"aten::log"}, kSin{"aten::sin"}, kCos{"aten::cos"};
constexpr Operator kEq{"aten::eq"}, kNe{"aten::ne"}, kLt{"aten::lt"}, kLe{"aten::le"}, kGt{"aten::gt"}, kGe{"aten::ge"};
constexpr Operator kAnd{"aten::bitwise_and"}, kOr{"aten::bitwise_or"}, kNot{"aten::bitwise_not"};
constexpr Operator kIsNan{"aten::isnan"}, kIsInf{"aten::isinf"}, kIsFinite{"aten::isfinite"}, kIsIn{"aten::isin"};
constexpr Operator kWhere{"aten::where"}, kAll{"aten::all"}, kAny{"aten::any"}, kMax{"aten::max"}, kMin{"aten::min"};
constexpr Operator kRepeatInterleave{"aten::repeat_interleave"};

/// Until the scope ends, neither autograd, nor a tracer, nor the list of kernels sees what is called.
class Unseen {
 public:
  explicit Unseen(Tape& tape) : no_grad_(tape.modes), recording_(tape.kernels.recording, false) {}

 private:
  NoGrad no_grad_;
  Scoped<bool> recording_;
};

Tensor unary(const Operator& op, const Arg& x, std::optional<DType> dtype = std::nullopt) {
  const OperatorCall call(x);
  const Unseen unseen(x->tape());
  return pointwise(op, {&*x}, 1, dtype);
}

Tensor binary(const Operator& op, const Arg& a, const Arg& b, std::optional<DType> dtype = std::nullopt) {
  const OperatorCall call(a, b);
  const Unseen unseen(a->tape());
  return pointwise(op, {&*a, &*b}, 1, dtype);
}

/// What has float results of integers, too.
Tensor real(const Operator& op, const Arg& x) {
  return unary(op, x, is_floating(x->dtype()) ? x->dtype() : DType::kFloat32);
}

unsigned every_dimension(const Tensor& x) { return (1U << x.rank()) - 1; }
unsigned one_dimension(const Tensor& x, int dim) { return 1U << (dim < 0 ? dim + x.rank() : dim); }

Tensor over(const Operator& op, const Arg& x, unsigned dims, bool keep_dims, DType dtype) {
  const OperatorCall call(x);
  const Unseen unseen(x->tape());
  return reduced(op, *x, dims, keep_dims, dtype);
}

Tensor like(const Operator& op, const Tensor& x) {
  return x.tape().empty_strided(x.shape(), like_strides(x.shape(), x.strides()), x.dtype(), op);
}

Tensor view_of(const Arg& x, const Shape& shape, const Shape& strides) {
  const OperatorCall call(x);
  return x->tape().alias(*x, shape, strides, false);
}

}  // namespace

Tensor arange(Tape& tape, std::int64_t length, DType dtype) { return tape.empty({length}, dtype, kArange); }
Tensor zeros(Tape& tape, const Shape& shape, DType dtype) { return tape.empty(shape, dtype, kZeros); }
Tensor ones(Tape& tape, const Shape& shape, DType dtype) { return tape.empty(shape, dtype, kOnes); }
Tensor full(Tape& tape, const Shape& shape, DType dtype) { return tape.empty(shape, dtype, kFull); }
Tensor new_zeros(Tape& tape, const Shape& shape, DType dtype) { return tape.empty(shape, dtype, kNewZeros); }
Tensor new_ones(Tape& tape, const Shape& shape, DType dtype) { return tape.empty(shape, dtype, kNewOnes); }
Tensor empty_like(const Tensor& x) { return like(kEmptyLike, x); }
Tensor zeros_like(const Tensor& x) { return like(kZerosLike, x); }
Tensor ones_like(const Tensor& x) { return like(kOnesLike, x); }
Tensor full_like(const Tensor& x) { return like(kFullLike, x); }
Tensor scalar(Tape& tape, DType dtype) { return tape.empty({}, dtype, kScalarTensor); }
Tensor from_list(Tape& tape, const Shape& shape, DType dtype) { return tape.empty(shape, dtype, kToCopy); }

Tensor add(Arg a, Arg b) { return binary(kAdd, a, b); }
Tensor add(Arg x) { return unary(kAdd, x); }
Tensor subtract(Arg a, Arg b) { return binary(kSub, a, b); }
Tensor subtract(Arg x) { return unary(kSub, x); }
Tensor multiply(Arg a, Arg b) { return binary(kMul, a, b); }
Tensor multiply(Arg x, std::optional<DType> dtype) { return unary(kMul, x, dtype); }
Tensor divide(Arg a, Arg b) { return binary(kDiv, a, b); }
Tensor divide(Arg x) { return real(kDiv, x); }
Tensor floor_divide(Arg x) { return unary(kFloorDivide, x); }
Tensor remainder(Arg x) { return unary(kRemainder, x); }
Tensor minimum(Arg a, Arg b) { return binary(kMinimum, a, b); }
Tensor clamp(Arg x) { return unary(kClamp, x); }
Tensor negate(Arg x) { return unary(kNeg, x); }
Tensor absolute(Arg x) { return unary(kAbs, x); }
Tensor reciprocal(Arg x) { return real(kReciprocal, x); }
Tensor exponential(Arg x) { return real(kExp, x); }
Tensor logarithm(Arg x) { return real(kLog, x); }
Tensor sine(Arg x) { return real(kSin, x); }
Tensor cosine(Arg x) { return real(kCos, x); }

Tensor power_of_number(Arg x) {
  const OperatorCall call(x);
  Tape& tape = x->tape();
  Tensor result = real(kPow, *x);
  tape.memory.scratch(8, kPow);
  return result;
}

Tensor equal(Arg a, Arg b) { return binary(kEq, a, b, DType::kBool); }
Tensor equal(Arg x) { return unary(kEq, x, DType::kBool); }
Tensor not_equal(Arg a, Arg b) { return binary(kNe, a, b, DType::kBool); }
Tensor not_equal(Arg x) { return unary(kNe, x, DType::kBool); }
Tensor less(Arg a, Arg b) { return binary(kLt, a, b, DType::kBool); }
Tensor less(Arg x) { return unary(kLt, x, DType::kBool); }
Tensor less_equal(Arg a, Arg b) { return binary(kLe, a, b, DType::kBool); }
Tensor greater(Arg a, Arg b) { return binary(kGt, a, b, DType::kBool); }
Tensor greater(Arg x) { return unary(kGt, x, DType::kBool); }
Tensor greater_equal(Arg a, Arg b) { return binary(kGe, a, b, DType::kBool); }
Tensor greater_equal(Arg x) { return unary(kGe, x, DType::kBool); }
Tensor bitwise_and(Arg a, Arg b) { return binary(kAnd, a, b); }
Tensor bitwise_and(Arg x) { return unary(kAnd, x); }
Tensor bitwise_or(Arg a, Arg b) { return binary(kOr, a, b); }
Tensor bitwise_not(Arg x) { return unary(kNot, x); }
Tensor isnan(Arg x) { return unary(kIsNan, x, DType::kBool); }

Tensor isinf(Arg x) {
  const OperatorCall call(x);
  return unary(kIsInf, absolute(*x), DType::kBool);
}

Tensor isfinite(Arg x) {
  const OperatorCall call(x);
  // As the compiler of torch's wheels orders it: the right factor first, and all temporaries until the product is made.
  const Tensor magnitude = absolute(*x);
  const Tensor bounded = unary(kIsFinite, magnitude, DType::kBool);
  const Tensor numbers = unary(kIsFinite, *x, DType::kBool);
  return binary(kIsFinite, numbers, bounded);
}

Tensor isin(Arg elements, const Tensor& tokens) {
  const OperatorCall call(elements);
  Tensor found = elements->tape().empty(elements->shape(), DType::kBool, kIsIn);
  Tensor equals = equal(no_grad::unsqueeze(*elements, -1), tokens);
  Tensor in_one = no_grad::any(equals, -1);
  drop(equals, in_one);  // it is copied into the result
  return found;
}

Tensor where(Arg condition, Arg a, Arg b) {
  const OperatorCall call(condition, a, b);
  const Unseen unseen(condition->tape());
  return pointwise(kWhere, {&*condition, &*a, &*b}, 1, a->dtype());
}

Tensor masked_fill(Arg x, Arg mask) {
  const OperatorCall call(x, mask);
  const Unseen unseen(x->tape());
  return memcalc::masked_fill(*x, *mask);
}

Tensor all(Arg x) { return over(kAll, x, every_dimension(*x), false, DType::kBool); }
Tensor any(Arg x) { return over(kAny, x, every_dimension(*x), false, DType::kBool); }
Tensor all(Arg x, int dim, bool keep_dim) { return over(kAll, x, one_dimension(*x, dim), keep_dim, DType::kBool); }
Tensor any(Arg x, int dim, bool keep_dim) { return over(kAny, x, one_dimension(*x, dim), keep_dim, DType::kBool); }
Tensor max(Arg x) { return over(kMax, x, every_dimension(*x), false, x->dtype()); }

Tensor min(Arg x, int dim) {
  const OperatorCall call(x);
  constexpr std::int64_t kPair = 16;  // ReduceMinValuesKernel.cu: a value and an int64 index
  Shape shape = x->shape();
  shape[dim] = 1;
  Tensor values = x->tape().empty(shape, x->dtype(), kMin);
  const Tensor places = x->tape().empty(shape, DType::kInt64, kMin);
  reduction_scratch(*x, one_dimension(*x, dim), kPair, kMin);
  return values;
}

Tensor sum(Arg x) {
  const OperatorCall call(x);
  const Unseen unseen(x->tape());
  return memcalc::sum(*x, every_dimension(*x), false, DType::kInt64);
}

Tensor sum(Arg x, int dim) {
  const OperatorCall call(x);
  const Unseen unseen(x->tape());
  return memcalc::sum(*x, one_dimension(*x, dim), false, DType::kInt64);
}

Tensor argmax_last(Arg x) {
  const OperatorCall call(x);
  const Unseen unseen(x->tape());
  return memcalc::argmax_last(*x);
}

Tensor cumsum(Arg x, int dim) {
  const OperatorCall call(x);
  const Unseen unseen(x->tape());
  return cumulative_sum(*x, dim, is_floating(x->dtype()) ? x->dtype() : DType::kInt64);
}

Tensor to(Arg x, DType dtype) {
  const OperatorCall call(x);
  return x->dtype() == dtype ? *x : copy_to(*x, dtype);
}

Tensor copy_to(Arg x, DType dtype) { return unary(kToCopy, x, dtype); }

Tensor clone(Arg x) {
  const OperatorCall call(x);
  const Unseen unseen(x->tape());
  return memcalc::clone(*x);
}

Tensor cat(Arg a, Arg b, int dim) {
  const OperatorCall call(a, b);
  const Unseen unseen(a->tape());
  return memcalc::cat(*a, *b, dim);
}

Tensor pad_last(Arg x, std::int64_t count) {
  const OperatorCall call(x);
  const Unseen unseen(x->tape());
  Shape shape = x->shape();
  shape[-1] += count;
  return pad_to(*x, shape);
}

Tensor repeat(Arg x, const Shape& times) {
  const OperatorCall call(x);
  const Unseen unseen(x->tape());
  return memcalc::repeat(*x, times);
}

Tensor repeat_interleave(Arg x, std::int64_t times, int dim) {
  const OperatorCall call(x);
  Shape shape = x->shape();
  shape[dim] *= times;
  return x->tape().empty(shape, x->dtype(), kRepeatInterleave);
}

Tensor gather(Arg x, const Tensor& index) {
  const OperatorCall call(x);
  const Unseen unseen(x->tape());
  return memcalc::gather(*x, index);
}

Tensor index_select(Arg x, int dim, const Tensor& places) {
  const OperatorCall call(x);
  const Unseen unseen(x->tape());
  return memcalc::index_select(*x, dim, places);
}

// native/TensorAdvancedIndexing.cpp, AdvancedIndex: on a card several indices must have the same strides once they are
// broadcast; else all of them are made contiguous, for as long as the operator runs. (memcalc::index does it, too, but
// counts the views.)
Tensor index(const Tensor& x, std::initializer_list<std::pair<int, Tensor>> places) {
  const Unseen unseen(x.tape());
  std::vector<std::pair<int, Tensor>> all(places);
  Shape found = all.front().second.shape();
  for (const auto& [dim, each] : all) found = broadcast_shapes(found, each.shape());
  for (auto& [dim, each] : all) each = no_grad::expand(each, found);
  const auto same = [&](const auto& place) { return place.second.strides() == all.front().second.strides(); };
  if (!std::all_of(all.begin(), all.end(), same)) {
    for (auto& [dim, each] : all) each = contiguous(each);
  }
  return memcalc::index(x, all);
}

Tensor view(Arg x, const Shape& shape) { return view_of(x, shape, contiguous_strides(shape)); }

Tensor unsqueeze(Arg x, int dim) {
  const int place = dim < 0 ? dim + x->rank() + 1 : dim;
  Shape shape, strides;
  shape.rank = strides.rank = x->rank() + 1;
  for (int i = 0; i < shape.rank; ++i) {
    const int from = i < place ? i : i - 1;
    shape[i] = i == place ? 1 : x->size(from);
    strides[i] = i == place ? (place < x->rank() ? x->size(place) * x->strides()[place] : 1) : x->strides()[from];
  }
  return view_of(x, shape, strides);
}

Tensor expand(Arg x, const Shape& shape) {
  Shape strides = shape;
  const int leading = shape.rank - x->rank();
  for (int i = 0; i < shape.rank; ++i) {
    const bool is_repeated = i < leading || (x->size(i - leading) == 1 && shape[i] != 1);
    strides[i] = is_repeated ? 0 : x->strides()[i - leading];
  }
  return view_of(x, shape, strides);
}

Tensor slice(Arg x, int dim, std::int64_t start, std::int64_t length) {
  static_cast<void>(start);  // an offset, which no shape shows
  Shape shape = x->shape();
  shape[dim] = length;
  return view_of(x, shape, x->strides());
}

Tensor select(Arg x, int dim) {
  Shape shape, strides;
  shape.rank = strides.rank = x->rank() - 1;
  const int dropped = dim < 0 ? dim + x->rank() : dim;
  for (int i = 0; i < shape.rank; ++i) {
    const int from = i < dropped ? i : i + 1;
    shape[i] = x->size(from);
    strides[i] = x->strides()[from];
  }
  return view_of(x, shape, strides);
}

}  // namespace memcalc::no_grad
