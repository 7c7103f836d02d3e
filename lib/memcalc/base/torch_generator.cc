// MIRRORS(torch, "aten/src/ATen/native/TensorFactories.cpp", "2.11.0")
#include "memcalc/base/torch_generator.h"

#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "memcalc/base/error.h"

namespace memcalc {

std::uint64_t TorchGenerator::random64() {
  const std::uint64_t high = random();  // CPUGeneratorImpl::random64
  return high << 32U | random();
}

// randperm_cpu (aten/src/ATen/native/TensorFactories.cpp).
std::vector<std::uint32_t> TorchGenerator::randperm(std::int64_t n) {
  if (n < 0 || n >= std::numeric_limits<std::uint32_t>::max() / 20) {
    throw Error(ErrorCode::kInternal, "TorchGenerator::randperm: n is out of range");
  }
  std::vector<std::uint32_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0U);
  for (std::uint32_t i = 0; i + 1 < order.size(); ++i) {
    const std::uint32_t left = static_cast<std::uint32_t>(order.size()) - i;
    std::swap(order[i], order[i + random() % left]);
  }
  return order;
}

}  // namespace memcalc
