// Operators that write values at places of a tensor.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// What is written at the places of an index as large as the source.
enum class Scattered : std::uint8_t { kReplaces, kAdds };

/// x.scatter(dim, index, source), x.scatter_add(dim, index, source). `source` undefined: a number.
[[nodiscard]] Tensor scatter(const Tensor& x, const Tensor& index, const Tensor& source, Scattered how);
/// The same in place, with x's new history.
[[nodiscard]] Tensor scatter_in_place(const Tensor& x, const Tensor& index, const Tensor& source, Scattered how);
/// x.index_add(dim, index, source): whole slices.
/// `scales`: by a factor, alpha.
[[nodiscard]] Tensor index_add(const Tensor& x, const Tensor& index, const Tensor& source, bool scales = false);
[[nodiscard]] Tensor index_add_in_place(const Tensor& x, const Tensor& index, const Tensor& source,
                                        bool scales = false);
/// x.masked_scatter(mask, source) whose mask has as many places as the source has values.
[[nodiscard]] Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source);
/// The same in place, with x's new history.
[[nodiscard]] Tensor masked_scatter_in_place(const Tensor& x, const Tensor& mask, const Tensor& source);

}  // namespace memcalc
