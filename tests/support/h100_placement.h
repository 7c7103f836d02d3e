// The placement of segments on the H100 on which the histories were recorded (driver 580, CUDA 13): the same values
// as in specs/gpus/h100-sxm.json, kept here so that the allocator's tests do not depend on reading specs.
#pragma once

#include "memcalc/base/bytes.h"
#include "memcalc/spec/device_spec.h"

namespace memcalc::measured {

[[nodiscard]] inline SegmentPlacement h100_placement() {
  SegmentPlacement placement;
  placement.chunk_granularity = 32 * kMiB;
  placement.initial_fragments = {{.offset = 74 * kMiB, .size = 22 * kMiB},
                                 {.offset = 8768 * kMiB, .size = 32 * kMiB},
                                 {.offset = -422 * kMiB, .size = 6 * kMiB}};
  placement.reserved_span = SegmentPlacement::Span{.offset = -928 * kMiB, .size = 544 * kMiB};
  return placement;
}

}  // namespace memcalc::measured
