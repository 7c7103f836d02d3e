#include "memcalc/families/deepseek_v4/hyper_connection.h"

#include <array>
#include <utility>
#include <vector>

#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc::deepseek_v4 {

Tensor unweighted_rms_norm(const Tensor& x) {
  Tensor scale = to_dtype(x, DType::kFloat32);
  scale = power(std::move(scale));
  scale = mean_last(std::move(scale));
  scale = add_scalar(std::move(scale));
  scale = reciprocal_sqrt(std::move(scale));
  scale = to_dtype(std::move(scale), x.dtype());
  return x * std::move(scale);
}

namespace {

/// self.input_norm(streams.flatten(2).float())
Tensor normed_streams(const Tensor& streams) {
  const Tensor flat = to_dtype(view(streams, {streams.size(0), streams.size(1), -1}), DType::kFloat32);
  return unweighted_rms_norm(flat);
}

/// F.linear(flat, weight.float())
Tensor mixed(const Tensor& flat, const Tensor& weight) {
  const Tensor matrix = to_dtype(weight, DType::kFloat32);
  return linear(flat, matrix, {});
}

/// (pre.unsqueeze(-1) * streams).sum(dim=2).to(streams.dtype)
Tensor weighted_sum(const Tensor& pre, const Tensor& streams) {
  Tensor weighted = unsqueeze(pre, -1) * streams;
  return to_dtype(sum_over(std::move(weighted), 2, false), streams.dtype());
}

}  // namespace

HyperConnection::HyperConnection(ModuleBuilder& b, const DeepseekV4Spec& spec)
    : streams(spec.hc_mult), iterations(spec.hc_sinkhorn_iters) {
  const std::int64_t mix = (2 + streams) * streams;
  fn = b.parameter("fn", {mix, checked_multiply(streams, spec.hidden_size)});
  base = b.parameter("base", {mix});
  scale = b.parameter("scale", {3});
}

HyperConnection::Mix HyperConnection::forward(const Tensor& hidden_streams) const {
  const std::array<std::int64_t, 3> sizes = {streams, streams, streams * streams};
  const std::int64_t batch = hidden_streams.size(0), tokens = hidden_streams.size(1);
  Tensor flat = normed_streams(hidden_streams);
  std::vector<Tensor> weights;
  {
    const Tensor product = mixed(flat, fn);
    weights = split_with_sizes(product, -1, sizes);
  }
  std::vector<Tensor> biases = split_with_sizes(base, -1, sizes);
  std::vector<Tensor> scales = unbind(scale, 0);
  const auto gate = [&](std::size_t i) {
    Tensor scaled = weights[i] * scales[i];
    scaled = std::move(scaled) + biases[i];
    return sigmoid(std::move(scaled));
  };
  Mix mix;
  Tensor pre = add_scalar(gate(0));
  mix.post = multiply_scalar(gate(1));
  Tensor comb_logits;
  {
    Tensor scaled = view(weights[2], {batch, tokens, streams, streams}) * scales[2];
    comb_logits = std::move(scaled) + view(biases[2], {streams, streams});
  }
  mix.comb = add_scalar(softmax(comb_logits));
  const auto normalise = [&](int dim) {
    Tensor sum = add_scalar(sum_over(mix.comb, dim, true));
    mix.comb = divide_both(mix.comb, std::move(sum));
  };
  normalise(2);
  for (std::int64_t i = 1; i < iterations; ++i) {  // Sinkhorn and Knopp's
    normalise(3);
    normalise(2);
  }
  mix.collapsed = weighted_sum(pre, hidden_streams);
  flat.reset();
  for (std::vector<Tensor>* parts : {&weights, &biases, &scales}) {
    for (Tensor& part : *parts) part.reset();
  }
  drop(pre, comb_logits);
  return mix;
}

Tensor HyperConnection::Mix::joined(const Tensor& output, const Tensor& streams) const {
  const DType dtype = streams.dtype();
  Tensor written;
  {
    const Tensor weight = unsqueeze(to_dtype(post, dtype), -1);
    written = weight * unsqueeze(output, -2);
  }
  Tensor kept = matmul(transpose(to_dtype(comb, dtype), 2, 3), streams);
  return std::move(written) + std::move(kept);
}

HyperHead::HyperHead(ModuleBuilder& b, const DeepseekV4Spec& spec)
    : fn(b.parameter("hc_fn", {spec.hc_mult, checked_multiply(spec.hc_mult, spec.hidden_size)})),
      base(b.parameter("hc_base", {spec.hc_mult})),
      scale(b.parameter("hc_scale", {1})) {}

Tensor HyperHead::operator()(const Tensor& x) const {
  Tensor flat = normed_streams(x);
  Tensor mixes = mixed(flat, fn);
  Tensor pre;
  {
    Tensor scaled = mixes * to_dtype(scale, DType::kFloat32);
    scaled = std::move(scaled) + to_dtype(base, DType::kFloat32);
    pre = add_scalar(sigmoid(std::move(scaled)));
  }
  Tensor result = weighted_sum(pre, x);
  drop(flat, mixes, pre);
  return result;
}

}  // namespace memcalc::deepseek_v4
