#include "memcalc/symbolic/ops/triangle.h"

#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/ops/recorded_node.h"

namespace memcalc {

namespace {

template <const AtenOperator& op>
Tensor triangle(const Tensor& x) {
  Node* node = record(
      op,
      [](BackwardCall& back) { back.set(0, filled(back.tape, back.gradient().shape(), back.gradient().dtype(), op)); },
      {&x});
  return finish(node, filled(x.tape(), x.shape(), x.dtype(), op));
}

}  // namespace

Tensor lower_triangle(const Tensor& x) { return triangle<aten::kTrilOf>(x); }
Tensor upper_triangle(const Tensor& x) { return triangle<aten::kTriuOf>(x); }

}  // namespace memcalc
