// What was measured of a card's memory, and under which versions: specs/measured/CARD/memory.json. A card's own file
// (--gpu PATH) may have the same figures. Covered by tests/unit/measured_memory_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/json_reader.h"

namespace memcalc {

/// Of a card's memory: no device holds more than 1 PiB.
inline constexpr IntRange kByteRange = {0, std::int64_t{1} << 50U};
inline constexpr IntRange kPositiveBytes = {1, std::int64_t{1} << 50U};

/// The keys that the file may have: those of specs/schema/measured.schema.json, which a test compares.
[[nodiscard]] std::span<const std::string_view> measured_memory_keys();

/// Takes over context, kernels, NCCL and placement of segments: keys that may be absent. Throws Error(kInput).
void read_memory_figures(const JsonObject& json, DeviceSpec& device);

/// A whole file: the figures, and that the card was measured. Throws Error(kInput).
void read_measured_memory(const JsonObject& json, DeviceSpec& device);

}  // namespace memcalc
