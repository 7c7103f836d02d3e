#include "memcalc/symbolic/first_calls.h"

#include <initializer_list>

#include "memcalc/base/mixed_hash.h"

namespace memcalc {

namespace {

std::uint64_t mixed(std::initializer_list<std::int64_t> numbers) {
  MixedHash hash;
  for (const std::int64_t number : numbers) hash.add(number);
  return hash.value();
}

std::int64_t number(bool flag) { return flag ? 1 : 0; }

// native/cudnn/MHA.cpp: mhagraphcache and mhagraphbackwardcache, each of a thread, without a limit, by the sizes and
// strides of query, key, value and bias, dropout, causality and whether the softmax's sums are asked for. Layers that
// are alike share a plan. Autograd has a thread of its own, so that what checkpointing computes again is planned again.
std::uint64_t plan_of(const Kernel& kernel, const work::Attention& attention) {
  const bool of_autograd = kernel.phase == Phase::kBackward;
  const bool has_sums = kernel.op != &kCudnnAttentionWithoutSums;
  return mixed({1, number(of_autograd), static_cast<std::int64_t>(kernel.dtype), attention.heads, attention.queries,
                attention.keys, attention.width, number(attention.causal), number(attention.dropout),
                number(attention.bias), number(attention.backward), number(has_sums)});
}

// cuBLAS's documentation, "Heuristics Cache": by the problem of a product, 8,192 of them.
std::uint64_t problem_of(const Kernel& kernel, const work::Product& product) {
  return mixed({2, static_cast<std::int64_t>(kernel.dtype), product.batch, product.m, product.n, product.k,
                static_cast<std::int64_t>(product.transposed)});
}

}  // namespace

std::optional<FirstCall> FirstCalls::call(const Kernel& kernel) {
  if (kernel.kind == KernelKind::kCudnnAttention) {
    const auto* attention = kernel.as<work::Attention>();
    if (attention == nullptr || !seen_.insert(plan_of(kernel, *attention)).second) return std::nullopt;
    return attention->backward ? FirstCall::kAttentionBackward : FirstCall::kAttention;
  }
  if (kernel.kind != KernelKind::kMatrixProduct || !is_half(kernel.dtype)) return std::nullopt;
  const auto* product = kernel.as<work::Product>();
  if (product == nullptr || !seen_.insert(problem_of(kernel, *product)).second) return std::nullopt;
  return FirstCall::kProduct;
}

FirstCallCounts FirstCalls::add(const KernelList& kernels) {
  FirstCallCounts counts{};
  for (const Kernel& kernel : kernels) {
    if (const auto what = call(kernel)) ++counts[static_cast<std::size_t>(*what)];
  }
  return counts;
}

}  // namespace memcalc
