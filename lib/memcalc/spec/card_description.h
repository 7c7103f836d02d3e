// A card that no file describes, in one line: "mine,24GB,sm89,1008GB/s,165TFLOPS". What the line does not say is taken
// from the known card of the same compute capability that is nearest, and each such figure is told of.
// Covered by tests/unit/card_description_test.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "memcalc/spec/device_spec.h"

namespace memcalc {

/// Whether a reference to a card is such a line and no name.
[[nodiscard]] constexpr bool is_card_description(std::string_view reference) {
  return reference.find(',') != std::string_view::npos;
}

/// "8.9"
[[nodiscard]] std::string capability_text(const DeviceSpec& card);

/// A name, then in any order: memory (24GB nominal, or 23.5GiB as torch reports it), smNN, and where they are known
/// memory bandwidth (1008GB/s or 1.0TB/s), the dense 16-bit rate of its tensor cores (165TFLOPS), multiprocessors
/// (128SM). `known`: all cards of the registry. Throws Error(kUsage): what was expected, what was found.
[[nodiscard]] DeviceSpec card_from_description(std::string_view text, std::span<const DeviceSpec> known);

}  // namespace memcalc
