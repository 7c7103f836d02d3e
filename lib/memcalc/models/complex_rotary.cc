#include "memcalc/models/complex_rotary.h"

#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/complex.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

RotaryPositions complex_positions(const RotaryEmbedding& rotary, const Tensor& x, const Tensor& position_ids,
                                  std::optional<DType> /*dtype*/) {
  Tape& tape = x.tape();
  const NoGrad no_grad(tape.modes);
  RotaryAngles angles(rotary.inverse_frequencies, position_ids);
  const Tensor& freqs = angles.freqs;
  Tensor freqs_cis;
  {
    const Tensor ones = no_grad::ones_like(freqs);
    freqs_cis = polar(ones, freqs);
  }
  freqs_cis = pointwise(aten::kMul, {&freqs_cis}, 2);  // * attention_scaling
  drop(angles.positions, angles.freqs);
  return {std::move(freqs_cis), {}};
}

Tensor as_complex(const Tensor& x) {
  Shape pairs = x.shape();
  pairs[-1] /= 2;
  pairs.dims[static_cast<std::size_t>(pairs.rank++)] = 2;
  return view_as_complex(reshape(to_dtype(x, DType::kFloat32), pairs));
}

Tensor rotated_complex(const Tensor& x, const Tensor& complex, const Tensor& freqs_cis) {
  return reshape(view_as_real(multiply_complex(complex, freqs_cis)), x.shape());
}

}  // namespace memcalc
