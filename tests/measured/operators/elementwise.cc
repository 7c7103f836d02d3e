// Element-wise operators.
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/activation.h"

#include "measured/operators/op_case.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc::measured {

namespace {

using test::TapeBench;

Runner unary(std::string op, Tensor (*function)(Arg)) {
  return ordinary(std::move(op), [function](TapeBench& bench, const OpCase& each) {
    const Tensor x = bench.input({each.integer("n")}, each.dtype());
    return Operation{.forward = [x, function] { return function(x); }};
  });
}

Runner binary(std::string op, Tensor (*function)(Arg, Arg)) {
  return ordinary(std::move(op), [function](TapeBench& bench, const OpCase& each) {
    const Tensor a = bench.input({each.integer("n")}, each.dtype());
    const Tensor b = bench.input({each.integer("n")}, each.dtype());
    return Operation{.forward = [a, b, function] { return function(a, b); }};
  });
}

Runner conversion(std::string op, DType dtype) {
  return ordinary(std::move(op), [dtype](TapeBench& bench, const OpCase& each) {
    const Tensor x = bench.input({each.integer("n")}, each.dtype());
    return Operation{.forward = [x, dtype] { return to_dtype(x, dtype); }};
  });
}

Runner dropping(std::string op, double probability) {
  return ordinary(std::move(op), [probability](TapeBench& bench, const OpCase& each) {
    const Tensor x = bench.input({each.integer("n")}, each.dtype());
    return Operation{.forward = [x, probability] { return dropout(x, probability); }};
  });
}

/// [B, S, h] with a smaller operand that is broadcast.
Runner broadcast(std::string op, Tensor (*function)(Arg, Arg), Shape (*second)(const Shape&),
                 bool small_first = false) {
  return ordinary(std::move(op), [=](TapeBench& bench, const OpCase& each) {
    const Shape shape{each.integer("B"), each.integer("S"), each.integer("h")};
    Tensor small, large;
    if (small_first) small = bench.input(second(shape), each.dtype());
    large = bench.input(shape, each.dtype());
    if (!small_first) small = bench.input(second(shape), each.dtype());
    return Operation{.forward = [=] { return small_first ? function(small, large) : function(large, small); }};
  });
}

Shape of_columns(const Shape& s) { return {s[2]}; }
Shape of_positions(const Shape& s) { return {1, s[1], s[2]}; }
Shape of_rows(const Shape& s) { return {s[0], s[1], 1}; }

/// rsqrt(x.abs() + 1), abs by another unary operator: memcalc has none.
Operation reciprocal_sqrt_case(TapeBench& bench, const OpCase& each) {
  const Tensor x = bench.input({each.integer("n")}, each.dtype());
  return {.forward = [x] { return reciprocal_sqrt(add_scalar(negate(x))); },
          .unchecked_backward = "the backward of the case's abs() is not modelled"};
}

Operation loss_division(TapeBench& bench, const OpCase& each) {  // x[0] / 4
  const Tensor x = bench.input({1}, each.dtype());
  return {.forward = [x] { return divide_scalar(select(x, 0)); }};
}

}  // namespace

std::vector<Runner> elementwise_runners() {
  return {
      unary("gelu", gelu),
      unary("gelu_tanh", gelu),
      unary("tanh", tanh),
      unary("silu", silu),
      unary("relu", relu),
      unary("sigmoid", sigmoid),
      unary("neg", negate),
      unary("pow2", power),
      unary("pow3", power),
      unary("mul_scalar", multiply_scalar),
      unary("add_scalar", add_scalar),
      unary("div_scalar", divide_scalar),
      binary("add", add),
      binary("sub", subtract),
      binary("mul", multiply),
      conversion("to_fp32", DType::kFloat32),
      conversion("to_bf16", DType::kBFloat16),
      dropping("dropout", 0.1),
      dropping("native_dropout", 0.1),
      dropping("dropout0", 0.0),
      broadcast("mul_weight", multiply, of_columns, true),
      broadcast("add_bias", add, of_columns),
      broadcast("add_pos", add, of_positions),
      broadcast("mul_rstd", multiply, of_rows),
      ordinary("rsqrt", reciprocal_sqrt_case),
      ordinary("loss_div_float", loss_division),
  };
}

}  // namespace memcalc::measured
