// Sorting, selecting and indexing by values, as routers and experts do.
#include "measured/operators/op_case.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/sort.h"

namespace memcalc::measured {

namespace {

using test::TapeBench;

Tensor integers(TapeBench& bench, const Shape& shape) { return bench.input(shape, DType::kInt64, false); }

Operation largest_two(TapeBench& bench, const OpCase& each) {
  const Tensor x = integers(bench, {each.integer("B"), each.integer("S")});
  return {.forward = [x, held = Selection{}]() mutable {
    held = topk(x, 2);
    return held.values;
  }};
}

Operation largest_two_values(TapeBench& bench, const OpCase& each) {
  const Tensor x = bench.input({each.integer("B") * each.integer("S"), each.integer("h")}, each.dtype());
  return {.forward = [x] { return topk(x, 2).values; }};
}

Operation order(TapeBench& bench, const OpCase& each) {  // argsort
  const Tensor x = integers(bench, {each.integer("B") * each.integer("S")});
  return {.forward = [x] { return sort(x).indices; }};
}

Operation row(TapeBench& bench, const OpCase& each) {
  const std::int64_t rows = each.integer("B") * each.integer("S");
  const Tensor x = bench.input({rows, each.integer("h")}, each.dtype());
  const Tensor index = integers(bench, {rows / 2});
  return {.forward = [=] { return index_rows(x, index); }};
}

Operation gathered(TapeBench& bench, const OpCase& each) {
  const Tensor x = bench.input({each.integer("B"), each.integer("S"), each.integer("h")}, each.dtype());
  const Tensor index = integers(bench, {each.integer("B"), each.integer("S"), 2});
  return {.forward = [=] { return gather(x, index); }};
}

Operation filled(TapeBench& bench, const OpCase& each) {
  const Tensor x = bench.input({each.integer("B"), each.integer("S"), each.integer("h")}, each.dtype());
  const Tensor mask = bench.input({each.integer("B"), each.integer("S"), 1}, DType::kBool, false);
  return {.forward = [=] { return masked_fill(x, mask); }};
}

Operation largest(TapeBench& bench, const OpCase& each) {
  const Tensor x = bench.input(each.shape("shape"), each.dtype(), false);
  return {.forward = [x, held = Selection{}]() mutable {
    held = max_along(x, x.rank() - 1, false);
    return held.values;
  }};
}

}  // namespace

std::vector<Runner> indexing_runners() {
  return {
      ordinary("topk", largest_two),   ordinary("topk_bwd", largest_two_values),
      ordinary("argsort_flat", order), ordinary("index_row", row),
      ordinary("gather", gathered),    ordinary("masked_fill", filled),
      ordinary("max_-1", largest),
  };
}

}  // namespace memcalc::measured
