// What delta rules that go over a sequence in chunks share: gated DeltaNet's and Kimi's.
#pragma once

#include <cstdint>
#include <utility>

#include "memcalc/symbolic/ops/copy_slices.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc::chunked {

inline constexpr std::int64_t kChunk = 64;  // chunk_size

[[nodiscard]] inline Tensor last_transposed(Arg x) {
  const int rank = x->rank();
  return transpose(std::move(x), rank - 2, rank - 1);
}

/// x[:, :, i]
[[nodiscard]] inline Tensor chunk_of(const Tensor& x) { return select(open_slices(x, {0, 1}), 2); }

/// x[:, :, i] = source
[[nodiscard]] inline Tensor with_chunk(const Tensor& x, const Tensor& source) {
  Tensor view;
  {
    const NoGrad no_grad(x.tape().modes);  // part of CopySlices
    view = chunk_of(x);
  }
  return copy_into_view(x, view, source);
}

/// x padded along dimension 2, the tokens.
[[nodiscard]] inline Tensor padded(const Tensor& x, std::int64_t tokens) {
  Shape shape = x.shape();
  shape[2] = tokens;
  return pad_to(x, shape);
}

[[nodiscard]] inline Tensor in_chunks(const Tensor& x, std::int64_t chunks) {
  if (x.rank() == 3) return reshape(x, {x.size(0), x.size(1), chunks, kChunk});
  return reshape(x, {x.size(0), x.size(1), chunks, kChunk, x.size(3)});
}

}  // namespace memcalc::chunked
