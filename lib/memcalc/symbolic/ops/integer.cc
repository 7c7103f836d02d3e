// MIRRORS(torch, "ReduceMinValuesKernel.cu", "2.11.0")
// MIRRORS(torch, "native/TensorAdvancedIndexing.cpp", "2.11.0")
#include "memcalc/symbolic/ops/integer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/cub.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/scan.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/symbolic/unlisted.h"
#include "memcalc/symbolic/within_call.h"

namespace memcalc::no_grad {

namespace {

/// Unlisted, and what the list of kernels takes all the same is of a loop around the model.
class Unseen {
 public:
  explicit Unseen(Tape& tape) : kernels_(tape.kernels), before_(tape.kernels.size()), unlisted_(tape) {}
  ~Unseen() {
    if (kernels_.size() > before_) mark(kernels_);
  }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;

  static void mark(KernelLog& kernels) {
    if (Kernel* kernel = kernels.last()) kernel->node = &kAroundModel;
  }

 private:
  KernelLog& kernels_;
  std::size_t before_;  // kernels
  Unlisted unlisted_;
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
  Tape& tape = x->tape();
  if (tape.kernels.integers) tape.kernels.pass_view();
  return tape.alias(*x, shape, strides, false);
}

/// An operator that writes a new tensor and reads none, or whose kernel is told by what it writes.
void record(const Operator& op, const Tensor& written) {
  KernelLog& kernels = written.tape().kernels;
  if (!kernels.integers) return;
  kernels.add(op, OperatorClass::kMovement, written.dtype(), 0, static_cast<double>(written.bytes()),
              KernelKind::kVectorized, static_cast<double>(written.elements()));
  Unseen::mark(kernels);
}

Tensor filled(Tape& tape, const Shape& shape, DType dtype, const Operator& op) {
  Tensor result = tape.empty(shape, dtype, op);
  record(op, result);
  return result;
}

Tensor filled_like(const Operator& op, const Tensor& x) {
  Tensor result = like(op, x);
  record(op, result);
  return result;
}

}  // namespace

Tensor arange(Tape& tape, std::int64_t length, DType dtype) { return filled(tape, {length}, dtype, aten::kArange); }
Tensor zeros(Tape& tape, const Shape& shape, DType dtype) { return filled(tape, shape, dtype, aten::kZeros); }
Tensor ones(Tape& tape, const Shape& shape, DType dtype) { return filled(tape, shape, dtype, aten::kOnes); }
Tensor full(Tape& tape, const Shape& shape, DType dtype) { return filled(tape, shape, dtype, aten::kFull); }
Tensor new_zeros(Tape& tape, const Shape& shape, DType dtype) { return filled(tape, shape, dtype, aten::kNewZeros); }
Tensor new_ones(Tape& tape, const Shape& shape, DType dtype) { return filled(tape, shape, dtype, aten::kNewOnes); }
Tensor empty_like(const Tensor& x) { return like(aten::kEmptyLike, x); }
Tensor zeros_like(const Tensor& x) { return filled_like(aten::kZerosLike, x); }
Tensor ones_like(const Tensor& x) { return filled_like(aten::kOnesLike, x); }
Tensor full_like(const Tensor& x) { return filled_like(aten::kFullLike, x); }
Tensor scalar(Tape& tape, DType dtype) { return filled(tape, {}, dtype, aten::kScalarTensor); }
// copy_kernel_cuda (native/cuda/Copy.cu): of pageable memory the host waits until the stream has come to the copy and
// made it. Seen on two H200s: no launch is ahead in a forward pass whose sliding cache layers copy the window's length.
Tensor from_list(Tape& tape, const Shape& shape, DType dtype) {
  Tensor result = tape.empty(shape, dtype, aten::kToCopy);
  tape.kernels.synchronize(aten::kToCopy);
  Unseen::mark(tape.kernels);
  return result;
}

Tensor add(Arg a, Arg b) { return binary(aten::kAdd, a, b); }
Tensor add(Arg x) { return unary(aten::kAdd, x); }
Tensor subtract(Arg a, Arg b) { return binary(aten::kSub, a, b); }
Tensor subtract(Arg x) { return unary(aten::kSub, x); }
Tensor multiply(Arg a, Arg b) { return binary(aten::kMul, a, b); }
Tensor multiply(Arg x, std::optional<DType> dtype) { return unary(aten::kMul, x, dtype); }
Tensor divide(Arg a, Arg b) { return binary(aten::kDiv, a, b); }
Tensor divide(Arg x) { return real(aten::kDiv, x); }
Tensor floor_divide(Arg x) { return unary(aten::kFloorDivide, x); }
Tensor remainder(Arg x) { return unary(aten::kRemainder, x); }
Tensor minimum(Arg a, Arg b) { return binary(aten::kMinimum, a, b); }
Tensor clamp(Arg x) { return unary(aten::kClamp, x); }
Tensor negate(Arg x) { return unary(aten::kNeg, x); }
Tensor absolute(Arg x) { return unary(aten::kAbs, x); }
Tensor sign(Arg x) { return unary(aten::kRoundOf, x); }
Tensor ceil(Arg x) { return unary(aten::kRoundOf, x); }
Tensor reciprocal(Arg x) { return real(aten::kReciprocal, x); }
Tensor exponential(Arg x) { return real(aten::kExp, x); }
Tensor logarithm(Arg x) { return real(aten::kLog, x); }
Tensor sine(Arg x) { return real(aten::kSin, x); }
Tensor cosine(Arg x) { return real(aten::kCos, x); }

Tensor power_of_number(Arg x) {
  const OperatorCall call(x);
  Tape& tape = x->tape();
  Tensor result = real(aten::kPow, *x);
  tape.memory.scratch(8, aten::kPow);
  return result;
}

Tensor equal(Arg a, Arg b) { return binary(aten::kEq, a, b, DType::kBool); }
Tensor equal(Arg x) { return unary(aten::kEq, x, DType::kBool); }
Tensor not_equal(Arg a, Arg b) { return binary(aten::kNe, a, b, DType::kBool); }
Tensor not_equal(Arg x) { return unary(aten::kNe, x, DType::kBool); }
Tensor less(Arg a, Arg b) { return binary(aten::kLt, a, b, DType::kBool); }
Tensor less(Arg x) { return unary(aten::kLt, x, DType::kBool); }
Tensor less_equal(Arg a, Arg b) { return binary(aten::kLe, a, b, DType::kBool); }
Tensor less_equal(Arg x) { return unary(aten::kLe, x, DType::kBool); }
Tensor greater(Arg a, Arg b) { return binary(aten::kGt, a, b, DType::kBool); }
Tensor greater(Arg x) { return unary(aten::kGt, x, DType::kBool); }
Tensor greater_equal(Arg a, Arg b) { return binary(aten::kGe, a, b, DType::kBool); }
Tensor greater_equal(Arg x) { return unary(aten::kGe, x, DType::kBool); }
Tensor bitwise_and(Arg a, Arg b) { return binary(aten::kBitwiseAnd, a, b); }
Tensor bitwise_and(Arg x) { return unary(aten::kBitwiseAnd, x); }
Tensor bitwise_or(Arg a, Arg b) { return binary(aten::kBitwiseOr, a, b); }
Tensor bitwise_not(Arg x) { return unary(aten::kBitwiseNot, x); }
Tensor isnan(Arg x) { return unary(aten::kIsnan, x, DType::kBool); }

Tensor isinf(Arg x) {
  const OperatorCall call(x);
  return unary(aten::kIsinf, absolute(*x), DType::kBool);
}

Tensor isfinite(Arg x) {
  const OperatorCall call(x);
  // As the compiler of torch's wheels orders it: the right factor first, and all temporaries until the product is made.
  const Tensor magnitude = absolute(*x);
  const Tensor bounded = unary(aten::kIsfinite, magnitude, DType::kBool);
  const Tensor numbers = unary(aten::kIsfinite, *x, DType::kBool);
  return binary(aten::kIsfinite, numbers, bounded);
}

namespace {

/// at::_unique of one dimension (native/cuda/Unique.cu, UniqueCub.cu): all different values, and with `returns_inverse`
/// where each element stands among them.
struct Unique {
  Tensor values, inverse;
};

Unique unique(const Tensor& elements, bool returns_inverse) {
  Tape& tape = elements.tape();
  const std::int64_t n = elements.elements();
  const auto numbers = [&] { return tape.empty({n}, elements.dtype(), aten::kIsin); };
  constexpr std::int64_t kInverseTile = 2304;  // of inclusive_sum_truncating; what two measured calls fit
  Unique result;
  const Tensor sorted = numbers();
  Tensor sorted_indices;
  if (returns_inverse) {
    Tensor range = numbers();
    sorted_indices = numbers();
    tape.memory.scratch(radix_sort_bytes(n), aten::kIsin);
    range.reset();
    result.inverse = numbers();
    const Tensor places = numbers();
    tape.memory.scratch(look_back_bytes(n, kInverseTile, 4), aten::kIsin);
  } else {
    tape.memory.scratch(radix_sort_bytes(n), aten::kIsin);  // of keys alone; few of them need nothing
  }
  result.values = numbers();
  const Tensor length = tape.empty({1}, DType::kInt64, aten::kIsin);
  tape.memory.scratch(select_bytes(n), aten::kIsin);
  return result;
}

/// native/TensorCompare.cpp, isin_sorting: elements and tokens in a row, sorted; an element that is followed by its
/// like is a token.
Tensor isin_sorting(const Tensor& elements, const Tensor& tokens) {
  Tape& tape = elements.tape();
  Tensor found = tape.empty(elements.shape(), DType::kBool, aten::kIsin);
  Unique of_elements = unique(elements, true);
  Unique of_tokens = unique(tokens, false);
  const std::int64_t n = elements.elements() + tokens.elements();
  const auto numbers = [&] { return tape.empty({n}, elements.dtype(), aten::kIsin); };
  const auto flags = [&](std::int64_t count) { return tape.empty({count}, DType::kBool, aten::kIsin); };
  Tensor all = numbers();
  drop(of_tokens.values, of_elements.values);
  Tensor values = numbers(), order = numbers();
  {
    const Tensor range = numbers();
    tape.memory.scratch(radix_sort_bytes(n), aten::kIsin);
  }
  Tensor duplicates = flags(n);
  flags(n - 1).reset();
  Tensor mask = flags(n);
  flags(elements.elements()).reset();
  record(aten::kIsin, found);
  drop(mask, duplicates, order, values, all, of_elements.inverse);
  return found;
}

}  // namespace

Tensor isin(Arg elements, const Tensor& tokens) {
  const OperatorCall call(elements);
  // native/TensorCompare.cpp: from so many tokens on, as numpy decides
  const double few = 10 * std::pow(static_cast<double>(elements->elements()), 0.145);
  if (static_cast<double>(tokens.elements()) >= few) return isin_sorting(*elements, tokens);
  Tensor found = elements->tape().empty(elements->shape(), DType::kBool, aten::kIsin);
  Tensor equals = equal(no_grad::unsqueeze(*elements, -1), tokens);
  Tensor in_one = no_grad::any(equals, -1);
  record(aten::kIsin, found);
  drop(equals, in_one);  // it is copied into the result
  return found;
}

Tensor where(Arg condition, Arg a, Arg b) {
  const OperatorCall call(condition, a, b);
  const Unseen unseen(condition->tape());
  return pointwise(aten::kWhere, {&*condition, &*a, &*b}, 1, a->dtype());
}

Tensor masked_fill(Arg x, Arg mask) {
  const OperatorCall call(x, mask);
  const Unseen unseen(x->tape());
  return memcalc::masked_fill(*x, *mask);
}

Tensor all(Arg x) { return over(aten::kAll, x, every_dimension(*x), false, DType::kBool); }
Tensor any(Arg x) { return over(aten::kAny, x, every_dimension(*x), false, DType::kBool); }
Tensor all(Arg x, int dim, bool keep_dim) {
  return over(aten::kAll, x, one_dimension(*x, dim), keep_dim, DType::kBool);
}
Tensor any(Arg x, int dim, bool keep_dim) {
  return over(aten::kAny, x, one_dimension(*x, dim), keep_dim, DType::kBool);
}
Tensor max(Arg x) { return over(aten::kMax, x, every_dimension(*x), false, x->dtype()); }

Tensor amax(Arg x, int dim) { return over(aten::kAmax, x, one_dimension(*x, dim), true, x->dtype()); }

Tensor min(Arg x) { return over(aten::kMin, x, every_dimension(*x), false, x->dtype()); }

Tensor min(Arg x, int dim) {
  const OperatorCall call(x);
  constexpr std::int64_t kPair = 16;  // ReduceMinValuesKernel.cu: a value and an int64 index
  Shape shape = x->shape();
  shape[dim] = 1;
  Tensor values = x->tape().empty(shape, x->dtype(), aten::kMin);
  const Tensor places = x->tape().empty(shape, DType::kInt64, aten::kMin);
  reduction_scratch(*x, one_dimension(*x, dim), kPair, aten::kMin);
  record(aten::kMin, values);
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

/// The largest of probabilities divided by random numbers of the exponential distribution. The result is resized first;
/// what C++ names no variable lives as long as the expression; two checks (_assert_async) live as long as the function.
Tensor multinomial_once(Arg x) {
  const OperatorCall call(x);
  constexpr std::int64_t kPair = 16;  // as argmax_last()
  const unsigned last = one_dimension(*x, -1);
  Tensor result = x->tape().empty({x->size(0)}, DType::kInt64, aten::kArgmax);
  Tensor is_valid, has_empty_row;
  {
    const Tensor highest = max(*x), finite = less(highest), lowest = min(*x), positive = greater_equal(lowest);
    is_valid = bitwise_and(finite, positive);
  }
  {
    const Unseen unseen(x->tape());
    const Tensor total = memcalc::sum(*x, last, false), is_zero = equal(total);
    has_empty_row = any(is_zero);
  }
  bitwise_not(has_empty_row).reset();
  const Tensor random = like(aten::kEmptyLike, *x);
  record(aten::kEmptyLike, random);
  reduction_scratch(random, last, kPair, aten::kArgmax);
  x->tape().kernels.add(aten::kArgmax, OperatorClass::kElementwise, x->dtype(), static_cast<double>(x->elements()),
                        static_cast<double>(x->bytes() + result.bytes()));
  return result;
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

Tensor copy_to(Arg x, DType dtype) { return unary(aten::kToCopy, x, dtype); }

void fill_in_place(Arg x) {
  const OperatorCall call(x);
  record(aten::kFill, *x);
}

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
  return filled(x->tape(), shape, x->dtype(), aten::kRepeatInterleave);
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
