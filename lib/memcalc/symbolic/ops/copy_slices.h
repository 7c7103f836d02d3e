// Writing into a part of a tensor that autograd follows. Covered by tests/unit/selection_test.cc.
#pragma once

#include <cstdint>
#include <span>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// x.new_empty(shape), which copies are to fill.
[[nodiscard]] Tensor new_empty(const Tensor& x, const Shape& shape);
/// base[..., start:start+length].copy_(source) with `source` of that shape: `base` with its new history.
[[nodiscard]] Tensor copy_into_columns(const Tensor& base, std::int64_t start, const Tensor& source);
/// view.copy_(source) for any view of `base`.
[[nodiscard]] Tensor copy_into_view(const Tensor& base, const Tensor& view, const Tensor& source);
/// view.add_(source), view.mul_(source or a number), view.sigmoid_() for any view of `base`: the same. `kept`: what the
/// derivative reads of what was there before; with kAdd view.addcmul_(kept, source). kOfResult reads what is there
/// then.
enum class InPlace : std::uint8_t { kCopy, kAdd, kMultiply, kOfResult };
[[nodiscard]] Tensor change_view(const Tensor& base, const Tensor& view, const Tensor& source, InPlace change,
                                 std::span<const Tensor> kept = {});
/// Variable::_base of a tensor that views have made from a differentiated one; undefined where none has. No value of
/// the program need hold it any more. Its layout is row-major: autograd knows only its sizes here.
[[nodiscard]] Tensor viewed_by(const Tensor& view);
/// x.copy_(source) of all of x.
[[nodiscard]] Tensor copy_in_place(const Tensor& x, const Tensor& source);

}  // namespace memcalc
