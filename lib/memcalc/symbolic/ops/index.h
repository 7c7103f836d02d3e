// Movements of whole rows and images: what window attention does beside its products.
#pragma once

#include <span>
#include <utility>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// table[rows] for a table [count, …] and int64 indices [n]: [n, …].
[[nodiscard]] Tensor index_rows(const Tensor& table, const Tensor& rows);
/// x[first, second] for x [a, b, width] and int64 indices [n]: [n, width].
[[nodiscard]] Tensor index_pairs(const Tensor& x, const Tensor& first, Arg second);
/// x[:, places, …] with int64 places at some of its dimensions, which are broadcast against each other.
[[nodiscard]] Tensor index(const Tensor& x, std::span<const std::pair<int, Tensor>> places);
/// x[:, mask, …] with a bool mask from dimension `dim` on, of which `count` elements are set.
[[nodiscard]] Tensor index_by_mask(const Tensor& x, int dim, const Tensor& mask, std::int64_t count);
/// x.index_select(dim, places)
[[nodiscard]] Tensor index_select(const Tensor& x, int dim, const Tensor& places);
/// x.masked_select(mask) of numbers that nobody differentiates, where `count` elements are set.
[[nodiscard]] Tensor masked_select(const Tensor& x, const Tensor& mask, std::int64_t count);
/// x[places] = source at some places, of tensors that nobody differentiates.
/// `places`: indices of dimensions, of which those of the host come to the card.
void index_put_in_place(const Tensor& x, const Tensor& source, std::span<const std::pair<int, Tensor>> places = {});
/// x[:, mask, …] = source with a bool mask from dimension `dim` on, as many of which are set as `source` has rows: x
/// with its new history.
[[nodiscard]] Tensor put_by_mask(const Tensor& x, int dim, const Tensor& mask, const Tensor& source);
/// mask.nonzero() where `count` elements are not zero: [count, rank] int64, for which the host waits.
[[nodiscard]] Tensor nonzero(const Tensor& mask, std::int64_t count);
/// x.gather(dim, index) for an index with as many dimensions.
[[nodiscard]] Tensor gather(const Tensor& x, const Tensor& index);
/// x.masked_fill(mask, number): a filled copy.
[[nodiscard]] Tensor masked_fill(Arg x, const Tensor& mask);
/// x.masked_fill_(mask, number)
[[nodiscard]] Tensor masked_fill_in_place(const Tensor& x, const Tensor& mask);
/// F.pad with zeros up to `shape`: a copy even where nothing is added.
[[nodiscard]] Tensor pad_to(const Tensor& x, const Shape& shape);
/// x.new_zeros(…).index_copy(1, columns, source) for x [rows, n] and int64 indices of all of its columns: [rows,
/// width].
[[nodiscard]] Tensor index_copy_to_zeros(Arg source, const Tensor& columns, std::int64_t width);
/// torch.roll over two dimensions: one after the other.
[[nodiscard]] Tensor roll(const Tensor& x);
/// torch.roll over one dimension.
[[nodiscard]] Tensor roll_once(const Tensor& x);
/// torch.flip: a copy.
[[nodiscard]] Tensor flip(const Tensor& x);
/// x.repeat(times): a copy of an expanded view.
[[nodiscard]] Tensor repeat(const Tensor& x, const Shape& times);

}  // namespace memcalc
