// Rows of the operator table that look at a tensor in another way, or copy what they see.
// MIRRORS(torch, "TensorShape.cpp", "2.11.0")
// MIRRORS(torch, "cuda/Repeat.cu", "2.11.0")
// MIRRORS(torch, "python_variable_indexing.cpp", "2.11.0")
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/as_strided.h"
#include "memcalc/symbolic/ops/complex.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/copy_slices.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/put.h"
#include "memcalc/symbolic/ops/repeat_interleave.h"
#include "memcalc/symbolic/ops/scan.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {
namespace {

using Kind = BoundArgument::Kind;

void view_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (call.slot(1).kind == Kind::kDType) {  // x.view(dtype): the same bytes
    const auto dtype = static_cast<DType>(call.slot(1).integer);
    if (size_of(dtype) != size_of(x.dtype())) call.refuse("a data type of another size");
    Tensor result = x.tape().alias(x, x.shape(), x.strides(), true);
    result.impl()->dtype = dtype;
    return call.returns(std::move(result));
  }
  call.returns(view(x, call.shape(1)));
}

void reshape_row(RecordedCall& call) { call.returns(reshape(call.tensor(0), call.shape(1))); }
void view_as_row(RecordedCall& call) { call.returns(view(call.tensor(0), call.tensor(1).shape())); }
void reshape_as_row(RecordedCall& call) { call.returns(reshape(call.tensor(0), call.tensor(1).shape())); }

void flatten_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  const int first = call.dimension(1, x.rank(), 0);
  const int last = call.dimension(2, x.rank(), -1);
  if (first == last) return call.returns(x);
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i > first && i <= last) {
      shape.dims[static_cast<std::size_t>(shape.rank - 1)] *= x.size(i);
    } else {
      shape.dims[static_cast<std::size_t>(shape.rank++)] = x.size(i);
    }
  }
  call.returns(reshape(x, shape));
}

void unflatten_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  const int dim = call.dimension(1, x.rank(), 0);
  const std::vector<std::int64_t> sizes = call.integers(2);
  std::int64_t known = 1;
  for (const std::int64_t size : sizes) known *= size > 0 ? size : 1;
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != dim) {
      shape.dims[static_cast<std::size_t>(shape.rank++)] = x.size(i);
      continue;
    }
    for (const std::int64_t size : sizes) {
      shape.dims[static_cast<std::size_t>(shape.rank++)] = size > 0 ? size : x.size(i) / known;
    }
  }
  call.returns(view(x, shape));
}

void transpose_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  call.returns(transpose(x, call.dimension(1, x.rank(), 0), call.dimension(2, x.rank(), 0)));
}

void t_row(RecordedCall& call) { call.returns(call.tensor(0).rank() < 2 ? call.tensor(0) : t(call.tensor(0))); }
void mt_row(RecordedCall& call) {
  call.returns(transpose(call.tensor(0), call.tensor(0).rank() - 2, call.tensor(0).rank() - 1));
}

Tensor permuted(const Tensor& x, const std::vector<std::int64_t>& order) {
  std::vector<int> dims;
  for (const std::int64_t dim : order) dims.push_back(static_cast<int>(dim < 0 ? dim + x.rank() : dim));
  return permute(x, dims);
}

void permute_row(RecordedCall& call) {
  if (static_cast<int>(call.integers(1).size()) != call.tensor(0).rank()) call.refuse("another number of dimensions");
  call.returns(permuted(call.tensor(0), call.integers(1)));
}

void movedim_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  const std::vector<std::int64_t> from = call.integers(1), to = call.integers(2);
  std::vector<std::int64_t> order(static_cast<std::size_t>(x.rank()), -1);
  std::vector<bool> used(order.size());
  const auto place = [&](std::int64_t dim) { return static_cast<std::size_t>(dim < 0 ? dim + x.rank() : dim); };
  for (std::size_t i = 0; i < from.size() && i < to.size(); ++i) {
    order[place(to[i])] = static_cast<std::int64_t>(place(from[i]));
    used[place(from[i])] = true;
  }
  std::size_t next = 0;
  for (std::int64_t& dim : order) {
    if (dim >= 0) continue;
    while (used[next]) ++next;
    dim = static_cast<std::int64_t>(next++);
  }
  call.returns(permuted(x, order));
}

void expand_row(RecordedCall& call) { call.returns(expand(call.tensor(0), call.shape(1))); }
void expand_as_row(RecordedCall& call) { call.returns(expand(call.tensor(0), call.tensor(1).shape())); }

void unsqueeze_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  call.returns(unsqueeze(x, call.dimension(1, x.rank() + 1, 0)));
}

void squeeze_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  std::vector<std::int64_t> dims;
  if (call.has(1)) {
    for (const std::int64_t dim : call.integers(1)) dims.push_back(dim < 0 ? dim + x.rank() : dim);
  } else {
    for (int i = 0; i < x.rank(); ++i) dims.push_back(i);
  }
  std::sort(dims.rbegin(), dims.rend());
  Tensor result = x;
  bool any = false;
  for (const std::int64_t dim : dims) {
    if (result.size(static_cast<int>(dim)) != 1) continue;
    result = squeeze(result, static_cast<int>(dim));
    any = true;
  }
  call.returns(any || x.rank() == 0 ? result : slice(x, 0, 0, x.size(0)));
}

struct Cut {
  std::int64_t start = 0, length = 0, step = 1;
  bool is_skipped = false;  // ATen/TensorIndexing.h, applySlice: from 0 to the end or beyond, as it is written;
                            // in torch before 2.9 only where the end is written, and is the end
};

Cut cut_of(const RecordedCall& call, const BoundArgument& slice, std::int64_t size) {
  const auto number = [&](std::size_t i, std::int64_t otherwise) {
    return slice.items[i].kind == Kind::kNone ? otherwise : call.integer(slice.items[i]);
  };
  const std::int64_t step = number(2, 1);
  if (step <= 0) call.refuse("a slice of negative step");
  const auto inside = [size](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size); };
  const std::int64_t start = inside(number(0, 0)), stop = inside(number(1, size));
  constexpr std::int64_t kOpen = std::numeric_limits<std::int64_t>::max();
  const std::int64_t written = number(1, kOpen);
  const bool ends_there = call.tape.behaviors.open_slices_are_views ? written == size : written >= size;
  const bool is_skipped = number(0, 0) == 0 && ends_there && step == 1;
  return {start, std::max<std::int64_t>(0, (stop - start + step - 1) / step), step, is_skipped};
}

/// python_variable_indexing.cpp: integers, slices, None and the ellipsis one after the other; tensors together at last.
struct Indexed {
  Tensor view;
  std::vector<std::pair<int, Tensor>> indices;  // dimension of the view, the tensor of places
};

Indexed index_into(const RecordedCall& call, const Tensor& x, const BoundArgument& argument) {
  const std::vector<BoundArgument> parts =
      argument.kind == Kind::kList ? argument.items : std::vector<BoundArgument>{argument};
  int specified = 0;
  for (const BoundArgument& part : parts) {
    if (part.kind == Kind::kNone || part.kind == Kind::kEllipsis || part.kind == Kind::kBool) continue;
    specified +=
        RecordedCall::is_tensor(part) && call.tensor(part).dtype() == DType::kBool ? call.tensor(part).rank() : 1;
  }
  Indexed result{x, {}};
  int dim = 0;
  for (const BoundArgument& part : parts) {
    switch (part.kind) {
      case Kind::kInteger: result.view = select(result.view, dim); break;
      case Kind::kSlice: {
        const Cut cut = cut_of(call, part, result.view.size(dim));
        if (!cut.is_skipped) {
          const bool whole = cut.start == 0 && cut.length == result.view.size(dim) && cut.step == 1;
          result.view =
              whole ? slice_whole(result.view, dim) : slice(result.view, dim, cut.start, cut.length, cut.step);
        }
        ++dim;
        break;
      }
      case Kind::kNone: result.view = unsqueeze(result.view, dim++); break;
      case Kind::kEllipsis: dim += x.rank() - specified; break;
      case Kind::kValue:
      case Kind::kParameter:
        result.indices.emplace_back(dim, call.tensor(part));
        dim += call.tensor(part).dtype() == DType::kBool ? call.tensor(part).rank() : 1;
        break;
      case Kind::kList:
        // python_variable_indexing.cpp, sequenceToVariable: a tensor of them, on the device of what is indexed.
        result.indices.emplace_back(
            dim++, call.tape.empty({static_cast<std::int64_t>(part.items.size())}, DType::kInt64, aten::kToCopy));
        break;
      default: call.refuse("an index of an unknown kind");
    }
  }
  return result;
}

void getitem_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  Indexed indexed = index_into(call, x, call.slot(1));
  if (indexed.indices.empty()) {
    const bool same = indexed.view.impl() == x.impl();
    return call.returns(same ? slice(x, 0, 0, x.size(0)) : std::move(indexed.view));  // at::alias
  }
  const auto is_mask = [](const auto& each) { return each.second.dtype() == DType::kBool; };
  if (std::any_of(indexed.indices.begin(), indexed.indices.end(), is_mask) && call.given_count() > 0) {
    if (indexed.indices.size() > 1) call.refuse("a mask beside other indices");
    const auto& [dim, mask] = indexed.indices.front();
    const std::int64_t count = call.given().shape[dim];
    return call.returns(index_by_mask(indexed.view, dim, mask, count));
  }
  call.returns(index(indexed.view, indexed.indices));
}

/// aten::index(x, [places or None for each dimension])
void index_row(RecordedCall& call) {
  std::vector<std::pair<int, Tensor>> places;
  int dim = 0;
  for (const BoundArgument& each : call.slot(1).items) {
    if (RecordedCall::is_tensor(each)) places.emplace_back(dim, call.tensor(each));
    ++dim;
  }
  const auto is_mask = [](const auto& each) { return each.second.dtype() == DType::kBool; };
  if (places.empty() || std::any_of(places.begin(), places.end(), is_mask)) call.refuse("a mask, or nothing");
  call.returns(index(call.tensor(0), places));
}

bool differentiates(const RecordedCall& call, const Tensor& x, int source) {
  return call.tape.modes.grad_enabled &&
         (x.requires_grad() || (call.is_tensor(source) && call.tensor(source).requires_grad()));
}

/// x.copy_(source), x[…] = source: what was written becomes part of the history of the tensor whose storage it is.
void copy_row(RecordedCall& call) {
  const Tensor &x = call.tensor(0), &source = call.tensor(1);
  if (!differentiates(call, x, 1)) {
    call.tape.kernels.add(aten::kCopy, OperatorClass::kMovement, x.dtype(), 0, static_cast<double>(x.bytes()),
                          KernelKind::kStrided);
    return call.returns(x);
  }
  Tensor view = call.change_view_of(x, x, source, InPlace::kCopy);
  call.returns(view.defined() ? std::move(view) : copy_in_place(x, source));
}

/// x[mask, …] = source of tensors that are differentiated; `x` with its new history.
Tensor put_differentiated(const RecordedCall& call, const Tensor& x, const Indexed& indexed) {
  const Tensor& source = call.tensor(2);
  const auto& [dim, mask] = indexed.indices.front();
  if (source.dtype() != x.dtype()) {  // TensorAdvancedIndexing.cpp: autocast does not cast for it
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("the program calls {} with a source of {} into {} (PyTorch itself stops there), which is not "
                    "modelled",
                    call.name(), name_of(source.dtype()), name_of(x.dtype())));
  }
  const bool is_mask = indexed.indices.size() == 1 && mask.dtype() == DType::kBool;
  const bool has_rows = source.rank() == x.rank() - mask.rank() + 1;
  if (!is_mask || !has_rows) call.refuse("a mask beside other places, or a source that is repeated");
  for (int i = 0; i < source.rank(); ++i) {
    const std::int64_t size = i < dim ? x.size(i) : x.size(i + mask.rank() - 1);
    if (i != dim && source.size(i) != size) call.refuse("a source that is repeated, and is differentiated");
  }
  return put_by_mask(x, dim, mask, source);
}

/// The places of a mask alone, which index_put_ looks for; undefined where the source does not say how many there are,
/// since it is repeated (no program has recorded that).
Tensor places_of_mask(const Indexed& indexed, const Tensor& source) {
  const auto& [dim, mask] = indexed.indices.front();
  if (indexed.indices.size() > 1 || mask.dtype() != DType::kBool) return {};
  const bool says = source.rank() == indexed.view.rank() - mask.rank() + 1 && source.size(dim) > 1;
  return says ? nonzero(mask, source.size(dim)) : Tensor{};
}

void setitem_row(RecordedCall& call) {
  const Tensor x = call.tensor(0);
  const Indexed indexed = [&] {
    const NoGrad no_grad(call.tape.modes);  // the view is part of CopySlices
    return index_into(call, x, call.slot(1));
  }();
  if (differentiates(call, x, 2)) {
    const Tensor source = call.is_tensor(2) ? call.tensor(2) : Tensor{};  // none: a number
    if (!indexed.indices.empty()) {
      const bool is_view = x.impl()->is_view || indexed.view.impl() != x.impl();
      if (is_view) call.refuse("places of a view that is differentiated");
      std::vector<Tensor> places;
      bool has_mask = false;
      for (const auto& [dim, each] : indexed.indices) {
        has_mask = has_mask || each.dtype() == DType::kBool;
        places.push_back(each);
      }
      if (places.size() > kMaxSaved) call.refuse("so many places");
      const Tensor now =
          has_mask && source.defined() ? put_differentiated(call, x, indexed) : put_at_places(x, places, source);
      call.replace(x, now);
      return;
    }
    if (call.change_view_of(x, indexed.view, source, InPlace::kCopy).defined()) return;
    const Tensor now = copy_into_view(x, indexed.view, source);
    call.replace(x, now);
    return call.renew_views(now, x.requires_grad());
  }
  if (!call.is_tensor(2) || indexed.indices.empty()) {
    x.tape().kernels.add(call.is_tensor(2) ? aten::kCopy : aten::kFill, OperatorClass::kMovement, x.dtype(), 0,
                         static_cast<double>(indexed.view.bytes()), KernelKind::kStrided);
    return;
  }
  const Tensor places = places_of_mask(indexed, call.tensor(2));
  index_put_in_place(indexed.view, call.tensor(2), indexed.indices);
}

void select_row(RecordedCall& call) {
  call.returns(select(call.tensor(0), call.dimension(1, call.tensor(0).rank(), 0)));
}

void narrow_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  call.returns(slice(x, call.dimension(1, x.rank(), 0), call.integer(2), call.integer(3)));
}

void return_all(RecordedCall& call, std::vector<Tensor> parts) {
  for (Tensor& part : parts) call.returns(std::move(part));
}

/// torch.split(x, size or sizes, dim): SplitBackward0 for one size, SplitWithSizesBackward0 for several.
void split_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  const int dim = call.dimension(2, x.rank(), 0);
  std::vector<std::int64_t> sizes;
  if (call.slot(1).kind == Kind::kList) {
    sizes = call.integers(1);
  } else {
    const std::int64_t size = call.integer(1);
    if (size <= 0) call.refuse("parts without elements");
    for (std::int64_t left = x.size(dim); left > 0; left -= size) sizes.push_back(std::min(left, size));
  }
  return_all(call, split_with_sizes(x, dim, sizes));
}

void chunk_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  const int dim = call.dimension(2, x.rank(), 0);
  const std::int64_t size = ceil_div(x.size(dim), std::max<std::int64_t>(call.integer(1), 1));
  std::vector<std::int64_t> sizes;
  for (std::int64_t left = x.size(dim); left > 0; left -= size) sizes.push_back(std::min(left, size));
  return_all(call, split_with_sizes(x, dim, sizes));
}

void unbind_row(RecordedCall& call) {
  return_all(call, unbind(call.tensor(0), call.dimension(1, call.tensor(0).rank(), 0)));
}

void contiguous_row(RecordedCall& call) {
  const std::string_view format = call.text_or(1, "contiguous_format");
  const Tensor& x = call.tensor(0);
  if (format.ends_with("channels_last") && x.rank() == 4) {
    const bool already = x.strides()[1] == 1 && x.strides()[3] == x.size(1) && x.strides()[2] == x.size(1) * x.size(3);
    if (already) return call.returns(x);
    // As .contiguous() of the images with their channels last.
    const Tensor seen = permute(x, {0, 2, 3, 1});
    return call.returns(permute(seen.is_contiguous() ? clone(seen) : contiguous(seen), {0, 3, 1, 2}));
  }
  call.returns(contiguous(x));
}

void clone_row(RecordedCall& call) {
  const bool row_major = call.text_or(1, "") == "contiguous_format";
  call.returns(row_major ? contiguous_copy(call.tensor(0)) : clone(call.tensor(0)));
}

void detach_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  call.returns(x.tape().detach(x));
}

/// Of a result without history: a leaf from here on.
void requires_grad_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (!call.boolean_or(1, true)) call.refuse("False");
  if (!x.requires_grad() && is_floating(x.dtype())) x.tape().autograd.require_gradient(x);
  call.returns(x);
}

/// A copy of what is on the host.
Tensor brought_to_card(const Tensor& x, DType dtype) {
  const OnMetaDevice there(x.tape().memory, false);
  return x.tape().empty(x.shape(), dtype, aten::kToCopy);
}

/// x.to(…): the data type among its arguments, that of another tensor, or none.
void to_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  std::optional<DType> dtype = call.dtype(2);
  bool on_card = call.text_or(6, "").starts_with("cuda") || call.name() == "cuda";
  const auto look_at = [&](const BoundArgument& argument) {
    if (argument.kind == Kind::kDType) dtype = static_cast<DType>(argument.integer);
    if (argument.kind == Kind::kText && argument.text.starts_with("cuda")) on_card = true;
    if (!RecordedCall::is_tensor(argument)) return;
    dtype = call.tensor(argument).dtype();
    on_card = on_card || !RecordedCall::on_host(call.tensor(argument));
  };
  if (call.slot(1).kind == Kind::kList) {
    for (const BoundArgument& argument : call.slot(1).items) look_at(argument);
  } else {
    look_at(call.slot(1));
  }
  if (call.has(3)) look_at(call.slot(3));
  if (on_card && RecordedCall::on_host(x)) return call.returns(brought_to_card(x, dtype.value_or(x.dtype())));
  const bool copies = call.boolean_or(5, false);
  if (copies && (!dtype || *dtype == x.dtype())) return call.returns(clone(x));
  if (dtype && call.text_or(7, "") == "contiguous_format") return call.returns(to_dtype_row_major(x, *dtype));
  call.returns(dtype ? to_dtype(x, *dtype) : x);
}

template <DType dtype>
void convert(RecordedCall& call) {
  call.returns(to_dtype(call.tensor(0), dtype));
}

void type_as_row(RecordedCall& call) {
  const Tensor &x = call.tensor(0), &other = call.tensor(1);
  const bool comes = RecordedCall::on_host(x) && !RecordedCall::on_host(other);
  call.returns(comes ? brought_to_card(x, other.dtype()) : to_dtype(x, other.dtype()));
}

void cat_row(RecordedCall& call) {
  std::vector<Tensor> parts = call.tensors(0);
  if (parts.empty()) call.refuse("nothing");
  // An empty tensor of one dimension is left out (TensorShape.cpp, legacy_cat_wrap_dim), but its type counts.
  DType widest = parts.front().dtype();
  for (const Tensor& part : parts) {
    if (part.dtype() == widest) continue;
    if (is_floating(part.dtype()) && (!is_floating(widest) || size_of(part.dtype()) >= size_of(widest))) {
      widest = part.dtype();
    }
  }
  std::vector<Tensor> whole;
  for (const Tensor& part : parts) {
    if (part.elements() > 0 || part.rank() > 1) whole.push_back(part);
  }
  if (whole.empty()) return call.returns(parts.front());
  const int dim = call.dimension(1, whole.front().rank(), 0);
  if (whole.size() == 1 && parts.size() == 2) return call.returns(cat_with_empty(whole.front(), widest));
  parts.clear();
  // Where types differ the kernel converts, under autocast too: cat and stack are on none of its lists.
  if (whole.size() == 2) return call.returns(cat(whole[0], whole[1], dim));
  call.returns(concatenate(whole, dim, widest));
}

void stack_row(RecordedCall& call) {
  std::vector<Tensor> parts = call.tensors(0);
  if (parts.empty()) call.refuse("nothing");
  const int dim = call.dimension(1, parts.front().rank() + 1, 0);
  for (Tensor& part : parts) part = unsqueeze(part, dim);
  call.returns(parts.size() == 2 ? cat(parts[0], parts[1], dim) : concatenate(parts, dim));
}

/// aten/src/ATen/native/PackedSequence.cpp, pad_sequence: a filled tensor, into whose parts the sequences are copied.
void pad_sequence_row(RecordedCall& call) {  // sequences batch_first padding_value padding_side
  const std::vector<Tensor> sequences = call.tensors(0);
  if (sequences.empty()) call.refuse("nothing");
  std::int64_t longest = 0;
  for (const Tensor& each : sequences) longest = std::max(longest, each.size(0));
  const bool batch_first = call.boolean_or(1, false);
  const auto count = static_cast<std::int64_t>(sequences.size());
  Shape shape{batch_first ? count : longest, batch_first ? longest : count};
  const Tensor& first = sequences.front();
  for (int i = 1; i < first.rank(); ++i) shape.dims[static_cast<std::size_t>(shape.rank++)] = first.size(i);
  Tensor made = call.tape.empty(shape, first.dtype(), aten::kZeros);
  call.tape.kernels.add(aten::kFill, OperatorClass::kMovement, made.dtype(), 0, static_cast<double>(made.bytes()));
  for (const Tensor& each : sequences) {
    const Tensor view = [&] {
      const NoGrad no_grad(call.tape.modes);  // the view is part of CopySlices
      return slice(select(made, batch_first ? 0 : 1), 0, 0, each.size(0));
    }();
    if (call.tape.modes.grad_enabled && (made.requires_grad() || each.requires_grad())) {
      made = copy_into_view(made, view, each);
    } else {
      call.tape.kernels.add(aten::kCopy, OperatorClass::kMovement, made.dtype(), 0, static_cast<double>(view.bytes()));
    }
  }
  call.returns(std::move(made));
}

void roll_row(RecordedCall& call) {
  const std::size_t times = call.has(2) ? call.integers(2).size() : 1;
  if (times == 2) return call.returns(roll(call.tensor(0)));
  call.returns(roll_once(call.tensor(0)));
}

void real_row(RecordedCall& call) { call.returns(view_as_real(call.tensor(0))); }
void complex_row(RecordedCall& call) { call.returns(view_as_complex(call.tensor(0))); }

/// x.repeat(*times): expanded to a strided view, and copied.
void repeat_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  const Shape times = call.shape(1);
  call.returns(repeat(x, times));
}

/// TensorShape.cpp, tile: repeats of fewer dimensions are those of the last ones.
void tile_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  const Shape times = call.shape(1);
  Shape all = times;
  if (times.rank < x.rank()) {
    const int more = x.rank() - times.rank;
    all.rank = x.rank();
    for (int i = 0; i < all.rank; ++i) all[i] = i < more ? 1 : times[i - more];
  }
  call.returns(repeat(x, all));
}

/// Repeats that are a tensor (cuda/Repeat.cu): their running sum, a check that none is negative, which the host waits
/// for, and the places that are then selected.
Tensor repeat_each(RecordedCall& call, const Tensor& x, const Tensor& repeats) {
  const int dim = call.has(2) ? call.dimension(2, x.rank(), 0) : 0;
  const Tensor flat = call.has(2) ? x : reshape(x, {x.elements()});
  Tensor places;
  {
    const Tensor sums = cumulative_sum(repeats, 0, DType::kInt64);
    Tensor checked = call.tape.empty(repeats.shape(), DType::kBool, aten::kRepeatInterleave);
    Tensor all = call.tape.empty({}, DType::kBool, aten::kRepeatInterleave);
    drop(all, checked);
    call.tape.kernels.synchronize(aten::kRepeatInterleave);
    places = call.tape.empty({call.given().shape[dim]}, DType::kInt64, aten::kRepeatInterleave);
  }
  return index_select(flat, dim, places);
}

void repeat_interleave_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (call.is_tensor(1)) return call.returns(repeat_each(call, x, call.tensor(1)));
  const std::int64_t times = call.integer(1);
  const int dim = call.has(2) ? call.dimension(2, x.rank(), 0) : 0;
  const Tensor flat = call.has(2) ? x : reshape(x, {x.elements()});
  call.returns(repeat_interleave(flat, times, dim));
}

void as_strided_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  const Shape shape = call.shape(1), strides = call.shape(2);
  if (shape.rank != strides.rank) call.refuse("another number of strides than of sizes");
  if (shape.elements() == 0) call.refuse("no elements");
  if (call.integer_or(3, 0) != 0) call.refuse("an offset in its storage");
  call.returns(as_strided(x, shape, strides));
}

void flip_row(RecordedCall& call) { call.returns(flip(call.tensor(0))); }

constexpr OperatorRow kRows[] = {
    {"view", "input *shape", view_row},
    {"reshape", "input *shape", reshape_row},
    {"view_as", "input other", view_as_row},
    {"reshape_as", "input other", reshape_as_row},
    {"flatten", "input start_dim end_dim", flatten_row},
    {"unflatten", "input dim sizes", unflatten_row},
    {"transpose", "input dim0 dim1", transpose_row},
    {"swapaxes", "input axis0 axis1", transpose_row},
    {"swapdims", "input dim0 dim1", transpose_row},
    {"t", "input", t_row},
    {"T", "input", t_row},
    {"mT", "input", mt_row},
    {"permute", "input *dims", permute_row},
    {"movedim", "input source destination", movedim_row},
    {"moveaxis", "input source destination", movedim_row},
    {"expand", "input *size", expand_row},
    {"broadcast_to", "input *size", expand_row},
    {"expand_as", "input other", expand_as_row},
    {"unsqueeze", "input dim", unsqueeze_row},
    {"squeeze", "input dim", squeeze_row},
    {"__getitem__", "input index", getitem_row},
    {"__setitem__", "input index value", setitem_row},
    {"index", "input indices", index_row},
    {"copy_", "input src non_blocking", copy_row},
    {"select", "input dim index", select_row},
    {"narrow", "input dim start length", narrow_row},
    {"split", "input split_size_or_sections dim", split_row},
    {"split_with_sizes", "input split_sizes dim", split_row},
    {"chunk", "input chunks dim", chunk_row},
    {"unbind", "input dim", unbind_row},
    {"contiguous", "input memory_format", contiguous_row},
    {"clone", "input memory_format", clone_row},
    {"detach", "input", detach_row},
    {"data", "input", detach_row},
    {"requires_grad_", "input requires_grad", requires_grad_row},
    {"to", "input *args dtype other non_blocking copy device memory_format", to_row},
    {"type", "input *args dtype other non_blocking copy device memory_format", to_row},
    {"cuda", "input *args dtype other non_blocking copy device memory_format", to_row},
    {"float", "input memory_format", convert<DType::kFloat32>},
    {"double", "input memory_format", convert<DType::kFloat64>},
    {"half", "input memory_format", convert<DType::kFloat16>},
    {"bfloat16", "input memory_format", convert<DType::kBFloat16>},
    {"long", "input memory_format", convert<DType::kInt64>},
    {"int", "input memory_format", convert<DType::kInt32>},
    {"byte", "input memory_format", convert<DType::kUInt8>},
    {"bool", "input memory_format", convert<DType::kBool>},
    {"type_as", "input other", type_as_row},
    {"cat", "tensors dim", cat_row},
    {"concat", "tensors dim", cat_row},
    {"concatenate", "tensors dim", cat_row},
    {"stack", "tensors dim", stack_row},
    {"pad_sequence", "sequences batch_first padding_value padding_side", pad_sequence_row},
    {"roll", "input shifts dims", roll_row},
    {"view_as_real", "input", real_row},
    {"view_as_complex", "input", complex_row},
    {"repeat", "input *sizes", repeat_row},
    {"tile", "input *dims", tile_row},
    {"repeat_interleave", "input repeats dim output_size", repeat_interleave_row},
    {"as_strided", "input size stride storage_offset", as_strided_row},
    {"flip", "input *dims", flip_row},
};

}  // namespace

std::span<const OperatorRow> view_rows() { return kRows; }

}  // namespace memcalc
