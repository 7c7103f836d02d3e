// Sums, means, norms, maxima: the result, then what a reduction kernel takes for itself.
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"

#include "measured/operators/op_case.h"
#include "memcalc/symbolic/ops/cub.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc::measured {

namespace {

using test::TapeBench;

constexpr Operator kReduction{"reduction"};
constexpr Operator kCompare{"aten::ne"};

/// The tensor that is reduced: row-major, or [B, H, S, D] in the memory of [B, S, H, D] ("bshd"), where a group of
/// heads may be split off H.
Tensor reduced_input(TapeBench& bench, const OpCase& each) {
  if (each.has("B")) return bench.input({each.integer("B"), each.integer("S")}, DType::kInt64, false);
  if (each.has("n")) return bench.input({each.integer("n")}, each.dtype());
  const Shape s = each.shape("shape");
  if (each.text("memory") != "bshd") return bench.input(s, each.dtype(), false);
  if (s.rank == 4) {
    return bench.strided_input(s, {s[1] * s[2] * s[3], s[3], s[1] * s[3], 1}, each.dtype(), false);
  }
  const std::int64_t row = s[1] * s[2] * s[4];  // [B, H, repeats, S, D]
  return bench.strided_input(s, {s[3] * row, s[2] * s[4], s[4], row, 1}, each.dtype(), false);
}

Operation sum(TapeBench& bench, const OpCase& each) {
  const Tensor x = reduced_input(bench, each);
  if (!is_floating(x.dtype())) {
    return {.forward = [x] { return no_grad::sum(x); }};
  }
  if (!each.has("dims")) {
    return {.forward = [x] { return sum_all(x); },
            .unchecked_backward = "sums of everything are not differentiated in memcalc"};
  }
  const Shape dims = each.shape("dims");
  Shape target = x.shape();
  for (int i = 0; i < dims.rank; ++i) target[static_cast<int>(dims[i])] = 1;
  if (!each.flag("keepdim")) {  // only leading dimensions are dropped in the cases
    Shape kept;
    for (int i = dims.rank; i < target.rank; ++i) kept.dims[static_cast<std::size_t>(kept.rank++)] = target[i];
    target = kept;
  }
  return {.forward = [x, target] { return sum_to(x, target); }};
}

Operation mean(TapeBench& bench, const OpCase& each) {
  const Tensor x = reduced_input(bench, each);
  if (each.has("dims")) return {.forward = [x] { return mean_last(x); }};
  return {.forward = [x] { return sum_all(x); },
          .unchecked_backward = "sums of everything are not differentiated in memcalc"};
}

Outcome run_sum(const OpCase& each) {
  if (each.has("out_dtype")) return {.skipped = "a sum with another dtype than its input's is not used"};
  if (each.has("shape") && each.dtype() == DType::kInt64) return {.skipped = "sums of int64 are not used"};
  return compare(each, test::h100(), sum);
}

/// A result and the kernel's scratch: the reductions that have no function of their own in memcalc.
struct Plain {
  DType result;
  std::int64_t accumulator_bytes;
  std::int64_t result_count = 1;
};

Operation plain_reduction(TapeBench& bench, const OpCase& each, Plain (*what)(DType), bool last_only) {
  const Tensor x = reduced_input(bench, each);
  const Plain plain = what(x.dtype());
  const unsigned all = (1U << x.rank()) - 1;
  const unsigned reduced = last_only ? 1U << (x.rank() - 1) : all;
  Shape shape;
  if (last_only) {
    shape = x.shape();
    shape[-1] = 1;
  }
  Operation operation;
  operation.forward = [=, &bench] {
    Tensor result = bench.tape.empty(shape, plain.result, kReduction);
    Tensor second;  // max(-1) also gives the indices
    if (plain.result_count == 2) second = bench.tape.empty(shape, DType::kInt64, kReduction);
    reduction_scratch(x, reduced, plain.accumulator_bytes, kReduction);
    return result;
  };
  return operation;
}

Plain logical(DType dtype) { return {DType::kBool, size_of(dtype)}; }
Plain extreme(DType dtype) { return {dtype, size_of(dtype)}; }
Plain index_of_extreme(DType) { return {DType::kInt64, 16}; }
Plain float_norm(DType dtype) { return {dtype, 4}; }

Runner plain(const std::string& op, Plain (*what)(DType)) {
  const bool last_only = op.size() > 3 && op.substr(op.size() - 3) == "_-1";
  return ordinary(op, [what, last_only](TapeBench& bench, const OpCase& each) {
    return plain_reduction(bench, each, what, last_only);
  });
}

Operation ne_sum(TapeBench& bench, const OpCase& each, bool shifted) {
  const Tensor x = reduced_input(bench, each);
  Shape shape = x.shape();
  if (shifted) --shape[-1];
  return {.forward = [shape, &bench] {
    const Tensor different = bench.tape.empty(shape, DType::kBool, kCompare);
    return no_grad::sum(different);
  }};
}

Operation cumulative_sum(TapeBench& bench, const OpCase& each) {  // over the last dimension
  const Tensor x = reduced_input(bench, each);
  Operation operation;
  operation.forward = [x, &bench] {
    Tensor result = bench.tape.empty(x.shape(), DType::kInt64, kReduction);
    Tensor converted;
    if (x.dtype() != DType::kInt64) converted = bench.tape.empty(x.shape(), DType::kInt64, kReduction);
    if (x.size(0) == 1) bench.tape.memory.scratch(scan_bytes(x.size(1)), kReduction);
    return result;
  };
  return operation;
}

}  // namespace

std::vector<Runner> reduction_runners() {
  return {
      {"sum", run_sum},
      ordinary("mean", mean),
      plain("all", logical),
      plain("all_-1", logical),
      plain("any", logical),
      plain("any_-1", logical),
      plain("max", extreme),
      plain("min", extreme),
      plain("amax", extreme),
      plain("argmax", index_of_extreme),
      plain("argmax_-1", index_of_extreme),
      plain("norm", float_norm),
      plain("vector_norm", float_norm),
      ordinary("ne_sum", [](TapeBench& bench, const OpCase& each) { return ne_sum(bench, each, false); }),
      ordinary("shift_ne_sum", [](TapeBench& bench, const OpCase& each) { return ne_sum(bench, each, true); }),
      ordinary("cumsum", cumulative_sum),
      ordinary("cumsum_-1", cumulative_sum),
  };
}

}  // namespace memcalc::measured
