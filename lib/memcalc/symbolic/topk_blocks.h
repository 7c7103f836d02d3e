// Which of its two kernels torch.topk takes: what asks for their memory and what tells their time must agree.
// MIRRORS(torch, "cuda/TensorTopK.cu", "2.11.0")
// Covered by tests/unit/kernel_time_test.cc.
#pragma once

#include <cstdint>
#include <utility>

namespace memcalc {

/// should_use_multi_block: whether thread blocks share each slice (mbtopk), of few that are long; else a block looks
/// through each (sbtopk).
[[nodiscard]] constexpr bool topk_shares_slices(std::int64_t slices, std::int64_t slice_size) {
  constexpr std::pair<std::int64_t, std::int64_t> kLeastSize[] = {{20, 20000}, {40, 10000}, {80, 8000},
                                                                  {200, 5000}, {800, 3000}, {4000, 800}};
  for (const auto& [most_slices, least] : kLeastSize) {
    if (slices <= most_slices) return slice_size >= least;
  }
  return slice_size >= 400;
}

}  // namespace memcalc
