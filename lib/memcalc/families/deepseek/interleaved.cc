#include "memcalc/families/deepseek/interleaved.h"

#include <utility>

#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin]) of the even and the odd numbers of x.
Tensor rotate_pairs(const Tensor& x1, const Tensor& x2, const Tensor& cos, const Tensor& sin) {
  Tensor first_cos = x1 * cos;
  Tensor second_sin = x2 * sin;
  Tensor first = std::move(first_cos) - std::move(second_sin);
  Tensor second_cos = x2 * cos;
  Tensor first_sin = x1 * sin;
  Tensor second = std::move(second_cos) + std::move(first_sin);
  Tensor rotated = cat(first, second, -1);
  drop(second, first);  // a Python list dies from its end
  return rotated;
}

}  // namespace

void rotate_interleaved(Tensor& query, Tensor& key, const RotaryPositions& positions, int heads) {
  const std::int64_t half = positions.cos.size(-1) / 2;
  const Tensor cos = unsqueeze(slice(positions.cos, -1, 0, half), heads);
  const Tensor sin = unsqueeze(slice(positions.sin, -1, 0, half), heads);
  const Tensor q1 = every_second(query, -1), q2 = every_second(query, -1);
  const Tensor k1 = every_second(key, -1), k2 = every_second(key, -1);
  Tensor q_embed = rotate_pairs(q1, q2, cos, sin);
  Tensor k_embed = rotate_pairs(k1, k2, cos, sin);
  query = std::move(q_embed);
  key = std::move(k_embed);
}

}  // namespace memcalc
