// The spellings of Parallel's enumerations, in their order.
#pragma once

#include <array>
#include <string_view>

#include "memcalc/spec/parallel_spec.h"

namespace memcalc {

inline constexpr std::array<std::string_view, 10> kDataParallelNames = {
    "none", "ddp", "dp", "zero1", "fsdp1", "fsdp2", "ds-zero1", "ds-zero2", "ds-zero3", "megatron-dist"};
inline constexpr std::array<std::string_view, 3> kFrameworkNames = {"torch", "deepspeed", "megatron"};
inline constexpr std::array<std::string_view, 5> kScheduleNames = {"gpipe", "1f1b", "interleaved", "zero-bubble",
                                                                   "zbv"};
inline constexpr std::array<std::string_view, 3> kContextParallelNames = {"all-gather", "ring", "ulysses"};
inline constexpr std::array<std::string_view, 3> kOffloadNames = {"none", "host", "nvme"};

[[nodiscard]] constexpr std::string_view name_of(DataParallel v) {
  return kDataParallelNames[static_cast<std::size_t>(v)];
}
[[nodiscard]] constexpr std::string_view name_of(Framework v) { return kFrameworkNames[static_cast<std::size_t>(v)]; }
[[nodiscard]] constexpr std::string_view name_of(PipelineSchedule v) {
  return kScheduleNames[static_cast<std::size_t>(v)];
}
[[nodiscard]] constexpr std::string_view name_of(ContextParallel v) {
  return kContextParallelNames[static_cast<std::size_t>(v)];
}
[[nodiscard]] constexpr std::string_view name_of(OffloadTo v) { return kOffloadNames[static_cast<std::size_t>(v)]; }

}  // namespace memcalc
