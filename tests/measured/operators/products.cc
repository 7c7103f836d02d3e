// Matrix products, and the workspaces that they take first in a fresh process.
#include "measured/operators/op_case.h"
#include "memcalc/symbolic/ops/attention.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc::measured {

namespace {

using test::TapeBench;

/// F.linear of [T, K], or of [2, T/2, K].
Runner linear_layer(std::string op, bool with_bias, bool three_dimensions) {
  return ordinary(std::move(op), [=](TapeBench& bench, const OpCase& each) {
    const std::int64_t rows = each.integer("T"), in = each.integer("K"), out = each.integer("N");
    const Tensor x = bench.input(three_dimensions ? Shape{2, rows / 2, in} : Shape{rows, in}, each.dtype());
    const Tensor weight = bench.input({out, in}, each.dtype());
    const Tensor bias = with_bias ? bench.input({out}, each.dtype()) : Tensor();
    return Operation{.forward = [=] { return linear(x, weight, bias); }};
  });
}

Operation conv1d(TapeBench& bench, const OpCase& each) {  // transformers' Conv1D: weight [in, out]
  const std::int64_t rows = each.integer("T"), in = each.integer("K"), out = each.integer("N");
  const Tensor x = bench.input({2, rows / 2, in}, each.dtype());
  const Tensor weight = bench.input({in, out}, each.dtype());
  const Tensor bias = bench.input({out}, each.dtype());
  return {.forward = [=] { return view(addmm(bias, view(x, {-1, in}), weight), {2, rows / 2, out}); }};
}

/// x @ w of matrices, as a linear layer with the transpose of w for its weight.
Runner plain_product(std::string op, bool first_transposed) {
  return ordinary(std::move(op), [=](TapeBench& bench, const OpCase& each) {
    const std::int64_t rows = each.integer("T"), in = each.integer("K"), out = each.integer("N");
    const Tensor x = bench.input(first_transposed ? Shape{in, rows} : Shape{rows, in}, each.dtype());
    const Tensor weight = bench.input({in, out}, each.dtype());
    return Operation{.forward = [=] { return linear(first_transposed ? t(x) : x, t(weight), {}); }};
  });
}

struct Heads {
  std::int64_t batch, heads, sequence, dim;
};

Heads heads_of(const OpCase& each) {
  return {each.integer("B"), each.integer("H"), each.integer("S"), each.integer("D")};
}

Runner scores(std::string op, bool scaled) {
  return ordinary(std::move(op), [scaled](TapeBench& bench, const OpCase& each) {
    const Heads s = heads_of(each);
    const Tensor q = bench.input({s.batch, s.sequence, s.heads, s.dim}, each.dtype());
    const Tensor k = bench.input({s.batch, s.sequence, s.heads, s.dim}, each.dtype());
    return Operation{.forward = [=] {
      Tensor product = matmul(transpose(q, 1, 2), transpose(transpose(k, 1, 2), 2, 3));
      return scaled ? multiply_scalar(std::move(product)) : product;
    }};
  });
}

Runner weighted_values(std::string op, bool contiguous_output) {
  return ordinary(std::move(op), [contiguous_output](TapeBench& bench, const OpCase& each) {
    const Heads s = heads_of(each);
    const Tensor p = bench.input({s.batch, s.heads, s.sequence, s.sequence}, each.dtype());
    const Tensor v = bench.input({s.batch, s.sequence, s.heads, s.dim}, each.dtype());
    return Operation{.forward = [=] {
      Tensor product = matmul(p, transpose(v, 1, 2));
      return contiguous_output ? contiguous(transpose(std::move(product), 1, 2)) : product;
    }};
  });
}

Operation batched(TapeBench& bench, const OpCase& each) {
  const Heads s = heads_of(each);
  const Tensor a = bench.input({s.batch * s.heads, s.sequence, s.dim}, each.dtype());
  const Tensor b = bench.input({s.batch * s.heads, s.dim, s.sequence}, each.dtype());
  return {.forward = [=] { return matmul(a, b); }};
}

Operation rotary_frequencies(TapeBench& bench, const OpCase& each) {  // (a.float() @ b.float()).transpose(1, 2)
  const Heads s = heads_of(each);
  const Tensor a = bench.input({s.batch, s.dim / 2, 1}, each.dtype());
  const Tensor b = bench.input({s.batch, 1, s.sequence}, each.dtype());
  return {.forward = [=] {
    Tensor wide = to_dtype(a, DType::kFloat32);  // C++ would evaluate the arguments last to first
    return transpose(matmul(std::move(wide), to_dtype(b, DType::kFloat32)), 1, 2);
  }};
}

/// A fresh process: x [128, 256], w [512, 256], b [512]; q [2, 64, 4, 64]. Twice the same forward.
std::function<Tensor()> fresh_forward(TapeBench& bench, const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  const DType dtype = has("bf16") || has("cudnn") ? DType::kBFloat16 : DType::kFloat32;
  const Tensor x = bench.input({128, 256}, dtype), w = bench.input({512, 256}, dtype), b = bench.input({512}, dtype);
  const Tensor q = bench.input({2, 64, 4, 64}, dtype);
  const auto starts = [&](const char* start) { return name.rfind(start, 0) == 0; };
  if (starts("mm_") || starts("linear_nobias")) return [=] { return linear(x, w, {}); };
  if (name == "linear_bias_1d" || name == "linear_bias_amp" || starts("baddbmm")) return nullptr;
  if (name == "linear_gelu") return [=] { return gelu(linear(x, w, b)); };
  if (starts("linear_bias")) return [=] { return linear(x, w, b); };
  if (starts("addmm")) return [=] { return addmm(b, x, t(w)); };
  if (starts("bmm")) return [=] { return matmul(view(x, {2, 64, 256}), transpose(view(x, {2, 64, 256}), 1, 2)); };
  if (starts("matmul_4d")) return [=] { return matmul(transpose(q, 1, 2), transpose(transpose(q, 1, 2), 2, 3)); };
  if (name == "sdpa_math_fp32") {
    return [=] {
      const Tensor kv = slice(transpose(q, 1, 2), 1, 0, 1);
      return scaled_dot_product_attention(transpose(q, 1, 2), kv, kv, {}, {.causal = true});
    };
  }
  if (starts("sdpa")) {
    return [=] {
      const Tensor heads = transpose(q, 1, 2);
      return scaled_dot_product_attention(heads, heads, heads, {}, {.causal = true});
    };
  }
  const Tensor weight = bench.input({256}, dtype), bias = bench.input({256}, dtype);
  return [=] { return layer_norm(x, weight, bias); };
}

Outcome run_fresh(const OpCase& each) {
  TapeBench bench;
  const std::function<Tensor()> forward = fresh_forward(bench, each.text("name"));
  if (!forward) return {.skipped = "a fresh process's product of a vector, under autocast, or baddbmm"};
  bench.start();
  const Tensor first = forward();
  Outcome outcome{.unchecked = "backward from a sum in a fresh process"};
  outcome.difference = difference("forward", *each.requests("forward"), bench.requests());
  bench.start();
  const Tensor second = forward();
  outcome.difference += difference("forward2", *each.requests("forward2"), bench.requests());
  return outcome;
}

}  // namespace

std::vector<Runner> product_runners() {
  return {
      linear_layer("linear", false, false),
      linear_layer("linear3d", false, true),
      linear_layer("linear_bias", true, false),
      linear_layer("linear_bias3d", true, true),
      ordinary("conv1d_addmm", conv1d),
      plain_product("mm_nn", false),
      plain_product("mm_tn", true),
      scores("qk_matmul", false),
      scores("qk_matmul_mul", true),
      weighted_values("pv_matmul", false),
      weighted_values("pv_out", true),
      ordinary("bmm", batched),
      ordinary("rope_freq", rotary_frequencies),
      {"fresh", run_fresh},
  };
}

}  // namespace memcalc::measured
