// Layer norm, softmax, losses, and the embedding with its dense backward.
#include "measured/operators/op_case.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/embedding.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc::measured {

namespace {

using test::TapeBench;

Operation layer_norm_case(TapeBench& bench, const OpCase& each) {
  const std::int64_t width = each.integer("h");
  const Shape shape =
      each.has("T") ? Shape{each.integer("T"), width} : Shape{each.integer("B"), each.integer("S"), width};
  const Tensor x = bench.input(shape, each.dtype());
  const Tensor weight = bench.input({width}, each.dtype());
  const Tensor bias = bench.input({width}, each.dtype());
  return {.forward = [=] { return layer_norm(x, weight, bias); }};
}

Operation rms_norm_case(TapeBench& bench, const OpCase& each) {
  const Tensor x = bench.input({each.integer("T"), each.integer("h")}, each.dtype());
  const Tensor weight = bench.input({each.integer("h")}, each.dtype());
  return {.forward = [=] { return rms_norm(x, weight); }};
}

Tensor rows(TapeBench& bench, const OpCase& each) {
  return bench.input({each.integer("T"), each.integer("V")}, each.dtype());
}

Operation softmax_case(TapeBench& bench, const OpCase& each) {
  const Tensor x = rows(bench, each);
  return {.forward = [x] { return softmax(x); }};
}

Operation log_softmax_case(TapeBench& bench, const OpCase& each) {
  const Tensor x = rows(bench, each);
  return {.forward = [x] { return log_softmax(x); }};
}

Operation softmax_in_float32(TapeBench& bench, const OpCase& each) {
  const Tensor x = rows(bench, each);
  return {.forward = [x] { return to_dtype(softmax(x, DType::kFloat32), x.dtype()); }};
}

Operation cross_entropy_case(TapeBench& bench, const OpCase& each) {
  const Tensor logits = rows(bench, each);
  const Tensor targets = bench.input({each.integer("T")}, DType::kInt64, false);
  return {.forward = [=] { return cross_entropy(logits, targets); }};
}

/// transformers' ForCausalLMLoss: a float32 copy of the logits, a sum, divided by the number of items.
Operation causal_loss(TapeBench& bench, const OpCase& each) {
  const Tensor logits = rows(bench, each);
  const Tensor targets = bench.input({each.integer("T")}, DType::kInt64, false);
  const Tensor items = bench.input({}, DType::kInt64, false);
  return {.forward = [=] {
    Tensor sum;
    {
      const Tensor wide = to_dtype(logits, DType::kFloat32);
      sum = cross_entropy(wide, targets);
    }
    return divide(std::move(sum), items);
  }};
}

Operation embedding_case(TapeBench& bench, const OpCase& each) {
  const Tensor weight = bench.input({each.integer("V"), each.integer("h")}, each.dtype());
  if (each.text("data") != "arange2d") {
    const Tensor indices = bench.input({each.integer("T")}, DType::kInt64, false);
    return {.forward = [=] { return embedding(weight, indices); }};
  }
  const std::int64_t sequence = each.integer("S");
  const Tensor positions = bench.input({1, sequence}, DType::kInt64, false);
  const Tensor indices = expand(positions, {each.integer("B"), sequence});
  return {.forward = [=] { return embedding(weight, indices); }};
}

}  // namespace

std::vector<Runner> norm_and_loss_runners() {
  return {
      ordinary("layer_norm", layer_norm_case),       ordinary("softmax", softmax_case),
      ordinary("log_softmax", log_softmax_case),     ordinary("softmax_fp32", softmax_in_float32),
      ordinary("cross_entropy", cross_entropy_case), ordinary("causal_loss", causal_loss),
      ordinary("embedding", embedding_case),         ordinary("rms_norm", rms_norm_case),
  };
}

}  // namespace memcalc::measured
