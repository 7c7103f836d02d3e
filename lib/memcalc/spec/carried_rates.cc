#include "memcalc/spec/carried_rates.h"

#include <algorithm>

namespace memcalc {

double carried_bandwidth(const MemoryScaling& from, double bandwidth, double bytes_per_second, double multiprocessors) {
  if (from.bytes_per_second <= 0 || bytes_per_second <= 0 || multiprocessors <= 0) return bandwidth;
  if (bytes_per_second <= from.bytes_per_second && multiprocessors < from.multiprocessors) return bandwidth;
  const double measured = 1 / (bandwidth * from.bytes_per_second);  // seconds a byte
  const double of_memory = std::min(measured, from.share / from.bytes_per_second);
  const double here = of_memory * from.bytes_per_second / bytes_per_second +
                      (measured - of_memory) * from.multiprocessors / multiprocessors;
  return 1 / (here * bytes_per_second);
}

// Not multi_tensor: AdamW's float32 lists reach 0.705 of the datasheet on an H100 and on an H200 (cost/kernel_time.cc)
std::array<MemoryRates*, 11> memory_bound_groups(DeviceRates& rates) {
  return {&rates.vectorized, &rates.converting, &rates.strided, &rates.random,  &rates.rowwise, &rates.softmax,
          &rates.row_sum,    &rates.column_sum, &rates.image,   &rates.pooling, &rates.indexed};
}

}  // namespace memcalc
