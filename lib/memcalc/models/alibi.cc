#include "memcalc/models/alibi.h"

#include <algorithm>
#include <bit>

#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// torch.pow(base, torch.arange(…, dtype=torch.int32)), whose operands live as long as the caller.
struct Powers {
  Tensor base, powers;

  Powers(Tape& tape, std::int64_t count)
      : base(no_grad::full(tape, {}, DType::kFloat32)), powers(no_grad::arange(tape, count, DType::kInt32)) {}
  [[nodiscard]] Tensor raised() const { return no_grad::multiply(powers, DType::kFloat32); }  // asks for the same
};

}  // namespace

Tensor build_alibi_tensor(const Tensor& attention_mask, std::int64_t heads, DType slope_type, DType dtype) {
  Tape& tape = attention_mask.tape();
  const std::int64_t batch = attention_mask.size(0), tokens = attention_mask.size(1);
  const auto closest = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  Powers first(tape, closest);
  Tensor slopes = first.raised();
  Tensor extra_base, extra_powers;
  if (closest != heads) {
    Powers extra(tape, std::min(closest, heads - closest));
    extra_base = extra.base;
    extra_powers = extra.powers;
    slopes = no_grad::cat(slopes, extra.raised(), 0);
  }
  Tensor arange_tensor;
  {
    Tensor places = no_grad::subtract(no_grad::cumsum(attention_mask, 1));
    arange_tensor = no_grad::view(no_grad::multiply(std::move(places), attention_mask), {batch, 1, tokens});
  }
  Tensor alibi = no_grad::multiply(no_grad::to(no_grad::view(slopes, {heads, 1}), slope_type), arange_tensor);
  Tensor result = no_grad::to(no_grad::view(alibi, {batch * heads, 1, tokens}), dtype);
  drop(first.base, first.powers, slopes, extra_base, extra_powers, arange_tensor, alibi);
  return result;
}

}  // namespace memcalc
