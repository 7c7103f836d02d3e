// Rows of the operator table that write at places of a tensor, count values, or look for them.
// MIRRORS(torch, "TensorShape.cpp", "2.11.0")
// MIRRORS(torch, "cuda/Unique.cu", "2.11.0")
// MIRRORS(torch, "cuda/UniqueCub.cu", "2.11.0")
#include <array>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/cub.h"
#include "memcalc/symbolic/ops/grouped_mm.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/scatter.h"
#include "memcalc/symbolic/ops/solve.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/ops/weight_norm.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {
namespace {

using Kind = BoundArgument::Kind;

/// The source of a scatter; undefined: a number.
const Tensor& source_of(const RecordedCall& call, int i) {
  static const Tensor kNumber;
  return call.is_tensor(i) ? call.tensor(i) : kNumber;
}

template <Scattered how, bool in_place>
void scatter_row(RecordedCall& call) {  // input dim index src reduce
  if (call.has(4)) call.refuse("a reduction");
  const Tensor &x = call.tensor(0), &index = call.tensor(2), &source = source_of(call, 3);
  call.returns(in_place ? scatter_in_place(x, index, source, how) : scatter(x, index, source, how));
}

template <bool in_place>
void index_add_row(RecordedCall& call) {  // input dim index source alpha
  const bool scales = call.number_or(4, 1) != 1;
  const Tensor &x = call.tensor(0), &index = call.tensor(2), &source = call.tensor(3);
  call.returns(in_place ? index_add_in_place(x, index, source, scales) : index_add(x, index, source, scales));
}

void masked_scatter_row(RecordedCall& call) {
  call.returns(masked_scatter(call.tensor(0), call.tensor(1), call.tensor(2)));
}

void histc_row(RecordedCall& call) {  // input bins min max
  if (call.tensor(0).dtype() != DType::kInt32) call.refuse("another type than int32");
  if (call.number_or(2, 0) == call.number_or(3, 0)) call.refuse("bounds that depend on values");
  call.returns(count_values(call.tensor(0), call.integer_or(1, 100)));
}

/// TensorShape.cpp, meshgrid: each vector as a view along a dimension of its own, expanded.
void meshgrid_row(RecordedCall& call) {  // *tensors indexing
  const bool swaps = call.text_or(1, "ij") == "xy";
  std::vector<Tensor> vectors = call.tensors(0);
  if (swaps && vectors.size() >= 2) std::swap(vectors[0], vectors[1]);
  Shape grid;
  for (const Tensor& each : vectors) {
    if (each.rank() > 1 || grid.rank == kMaxDims) call.refuse("what is no vector");
    grid.dims[static_cast<std::size_t>(grid.rank++)] = each.elements();
  }
  std::vector<Tensor> views;
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    Shape own;
    for (int dim = 0; dim < grid.rank; ++dim) own.dims[static_cast<std::size_t>(own.rank++)] = 1;
    own[static_cast<int>(i)] = vectors[i].elements();
    views.push_back(expand(view(vectors[i], own), grid));
  }
  if (swaps && views.size() >= 2) std::swap(views[0], views[1]);
  for (Tensor& each : views) call.returns(std::move(each));
}

void solve_triangular_row(RecordedCall& call) {  // input B upper left unitriangular
  const Tensor &a = call.tensor(0), &b = call.tensor(1);
  bool alike = a.rank() == b.rank();
  for (int i = 0; alike && i < a.rank() - 2; ++i) alike = a.size(i) == b.size(i);
  if (!alike) call.refuse("stacks that are broadcast");
  call.returns(solve_triangular(a, b, call.boolean_or(3, true)));
}

void weight_norm_row(RecordedCall& call) {  // v g dim
  const Tensor& v = call.tensor(0);
  const int dim = call.dimension(2, v.rank(), 0);
  if (dim != 0 && dim != v.rank() - 1) call.refuse("a dimension in the middle");
  call.returns(weight_norm(v, call.tensor(1)));
}

/// cuda/Bucketization.cu: places alone where both are contiguous and of one type.
void searchsorted_row(RecordedCall& call) {  // sorted_sequence input out_int32 right side sorter
  const Tensor& sequence = call.tensor(0);
  if (!call.is_tensor(1) || call.has(5)) call.refuse("a number, or what is not sorted");
  const Tensor& x = call.tensor(1);
  if (sequence.dtype() != x.dtype() || !sequence.is_contiguous() || !x.is_contiguous())
    call.refuse("what is copied first");
  call.returns(
      filled(call.tape, x.shape(), call.boolean_or(2, false) ? DType::kInt32 : DType::kInt64, aten::kBucketize));
}

void nonzero_row(RecordedCall& call) {  // input as_tuple
  const Tensor& x = call.tensor(0);
  const Tensor places = nonzero(x, call.given().shape[0]);
  if (!call.boolean_or(1, false)) return call.returns(places);
  for (Tensor& each : unbind(places, 1)) call.returns(std::move(each));
}

void masked_select_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (x.requires_grad() && call.tape.modes.grad_enabled) call.refuse("what is differentiated");
  call.returns(masked_select(x, call.tensor(1), call.given().shape[0]));
}

/// cuda/Unique.cu, compute_unique: the distinct values in a storage for all, of which a part is left.
void unique_consecutive_row(RecordedCall& call) {  // input return_inverse return_counts dim
  const Tensor& x = call.tensor(0);
  if (call.boolean_or(1, false) || call.boolean_or(2, false) || call.has(3)) call.refuse("more than the values");
  Tensor data = call.tape.empty({x.elements()}, x.dtype(), aten::kUniqueConsecutive);
  {
    const Tensor count = call.tape.empty({1}, DType::kInt64, aten::kUniqueConsecutive);
    call.tape.memory.scratch(select_bytes(x.elements()), aten::kUniqueConsecutive);
    call.tape.kernels.synchronize(aten::kUniqueConsecutive);
  }
  call.returns(call.tape.become_view(data, call.given().shape, contiguous_strides(call.given().shape)));
}

/// cuda/UniqueCub.cu: the values sorted, then the distinct ones and how often each stands there, in storages for all,
/// of which a part is left.
void unique_row(RecordedCall& call) {  // input sorted return_inverse return_counts dim
  const Tensor& x = call.tensor(0);
  if (call.boolean_or(2, false) || call.has(4)) call.refuse("places of the values, or a dimension");
  const bool counts = call.boolean_or(3, false);
  const std::int64_t n = x.elements();
  Tensor values;
  Tensor often;
  {
    const Tensor sorted = call.tape.empty({n}, x.dtype(), aten::kUnique2);
    call.tape.memory.scratch(radix_sort_bytes(n), aten::kUnique2);
    values = call.tape.empty({n}, x.dtype(), aten::kUnique2);
    const Tensor count = call.tape.empty({1}, DType::kInt64, aten::kUnique2);
    if (counts) often = call.tape.empty({n}, DType::kInt64, aten::kUnique2);
    call.tape.memory.scratch(counts ? unique_bytes(n) : select_bytes(n), aten::kUnique2);
    call.tape.kernels.synchronize(aten::kUnique2);
  }
  const Shape& found = call.given().shape;
  call.returns(call.tape.become_view(values, found, contiguous_strides(found)));
  if (counts) call.returns(call.tape.become_view(often, found, contiguous_strides(found)));
}

constexpr OperatorRow kRows[] = {
    {"nonzero", "input as_tuple", nonzero_row},
    {"argwhere", "input", nonzero_row},
    {"searchsorted", "sorted_sequence input out_int32 right side sorter", searchsorted_row},
    {"masked_select", "input mask", masked_select_row},
    {"unique", "input sorted return_inverse return_counts dim", unique_row},
    {"unique_consecutive", "input return_inverse return_counts dim", unique_consecutive_row},
    {"scatter", "input dim index src reduce", scatter_row<Scattered::kReplaces, false>},
    {"scatter_", "input dim index src reduce", scatter_row<Scattered::kReplaces, true>},
    {"scatter_add", "input dim index src reduce", scatter_row<Scattered::kAdds, false>},
    {"scatter_add_", "input dim index src reduce", scatter_row<Scattered::kAdds, true>},
    {"index_add", "input dim index source alpha", index_add_row<false>},
    {"index_add_", "input dim index source alpha", index_add_row<true>},
    {"masked_scatter", "input mask source", masked_scatter_row},
    {"histc", "input bins min max", histc_row},
    {"meshgrid", "*tensors indexing", meshgrid_row},
    {"solve_triangular", "input B upper left unitriangular", solve_triangular_row},
    {"_weight_norm", "v g dim", weight_norm_row},
};

}  // namespace

std::span<const OperatorRow> scatter_rows() { return kRows; }

}  // namespace memcalc
