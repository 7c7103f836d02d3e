// What a time would need of a card and nobody knows: figures that its datasheet lacks, and the speed of types that the
// card has no units for. Where anything is missing there is no time, and the report names it.
// Covered by tests/unit/missing_rates_test.cc.
#pragma once

#include <string>
#include <vector>

#include "memcalc/spec/device_spec.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// Names of the rates that these kernels need and the card's spec does not give, each once, in the order in which the
/// kernels ask for them: "float32 FLOP/s", "the number of multiprocessors". Empty: a time can be given.
[[nodiscard]] std::vector<std::string> missing_rates(const KernelList& kernels, const DeviceSpec& device);

/// How the card computes the types of these kernels where it does so in another way than their name says: bfloat16 in
/// software, TF32 in float32. One sentence each.
[[nodiscard]] std::vector<std::string> substituted_types(const KernelList& kernels, const DeviceSpec& device);

}  // namespace memcalc
