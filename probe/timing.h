// Seconds on the card of something that is launched: a loop long enough to be measured, the median of three.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>

#include "cuda_check.h"

namespace memcalc::probe {

class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    MEMCALC_CUDA(cudaEventCreate(&begin_));
    MEMCALC_CUDA(cudaEventCreate(&end_));
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  /// Of one call of `launch`, which puts its work on the stream.
  template <typename Launch>
  double seconds(Launch launch) {
    constexpr double kLongEnough = 2e-3;
    const double once = std::max(loop(launch, 1), 2e-6);
    const int calls = static_cast<int>(std::clamp(kLongEnough / once, 3.0, 60.0));
    std::array<double, 3> each{};
    for (double& value : each) value = loop(launch, calls) / calls;
    std::sort(each.begin(), each.end());
    return each[1];
  }

  template <typename Launch>
  double loop(Launch launch, int calls) {
    MEMCALC_CUDA(cudaEventRecord(begin_, stream_));
    for (int i = 0; i < calls; ++i) launch();
    MEMCALC_CUDA(cudaEventRecord(end_, stream_));
    MEMCALC_CUDA(cudaEventSynchronize(end_));
    float milliseconds = 0;
    MEMCALC_CUDA(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return milliseconds * 1e-3;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace memcalc::probe
