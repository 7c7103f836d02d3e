// torch's generator of random numbers on the host, number for number: what orders a data set.
// Covered by tests/unit/torch_generator_test.cc.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace memcalc {

/// torch.Generator().manual_seed(seed). Of the seed, torch uses the lower 32 bits (ATen/core/MT19937RNGEngine.h).
class TorchGenerator {
 public:
  explicit TorchGenerator(std::uint64_t seed) : engine_(static_cast<std::uint32_t>(seed)) {}

  /// 32 and 64 random bits. torch.empty((), dtype=torch.int64).random_() is the lower 63 of the 64.
  std::uint32_t random() { return static_cast<std::uint32_t>(engine_()); }
  std::uint64_t random64();

  /// torch.randperm(n), for n below 214,748,364: from there on torch draws in another way. Throws Error(kInternal).
  [[nodiscard]] std::vector<std::uint32_t> randperm(std::int64_t n);

 private:
  std::mt19937 engine_;  // the standard fixes its numbers: those of torch's own Mersenne twister
};

}  // namespace memcalc
