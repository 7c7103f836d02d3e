#include "memcalc/train/ranks.h"

namespace memcalc {

std::vector<RankGroup> distinct_ranks(const ModelSpec& /*model*/, const RunSpec& run, const DeviceSpec& /*device*/) {
  const std::int64_t gpus = run.parallel.gpus;
  return {{.first = 0, .count = gpus, .name = gpus == 1 ? "rank 0" : "all " + std::to_string(gpus) + " ranks"}};
}

}  // namespace memcalc
