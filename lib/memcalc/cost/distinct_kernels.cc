#include "memcalc/cost/distinct_kernels.h"

#include <array>

#include "memcalc/base/bytes.h"

namespace memcalc {

namespace {

constexpr int kPlacesBits = 10;

std::size_t place_of(const Kernel& kernel) {
  const auto address = [](const Operator* op) { return reinterpret_cast<std::uintptr_t>(op) >> 3U; };
  const auto number = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  std::uint64_t mixed = address(kernel.op) * 31 + address(kernel.node) * 1009 + bits_of(kernel.bytes) * 65537 +
                        number(kernel.views) * 101 + number(kernel.nodes) * 10007 +
                        number(static_cast<int>(kernel.phase)) * 7;
  if (const auto* product = kernel.as<work::Product>()) mixed += number(product->m) * 37 + number(product->k) * 1013;
  return (mixed * 0x9E3779B97F4A7C15U) >> (64U - kPlacesBits);
}

}  // namespace

DistinctKernels::DistinctKernels(const KernelList& kernels) : kernels_(kernels) {
  std::array<std::uint32_t, std::size_t{1} << kPlacesBits> places{};  // one more than the number of the last there
  numbers_.reserve(kernels.size());
  for (const Kernel& kernel : kernels) {
    std::uint32_t& place = places[place_of(kernel)];
    if (place == 0 || !(*distinct_[place - 1] == kernel)) {
      distinct_.push_back(&kernel);
      place = static_cast<std::uint32_t>(distinct_.size());
    }
    numbers_.push_back(place - 1);
  }
}

}  // namespace memcalc
