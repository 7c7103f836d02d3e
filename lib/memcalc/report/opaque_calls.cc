#include "memcalc/report/opaque_calls.h"

#include <fmt/core.h>

#include <unordered_map>

#include "memcalc/symbolic/ops/operator_table.h"

namespace memcalc {

std::vector<OpaqueCalls> opaque_calls(const KernelList& kernels) {
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<OpaqueCalls> found;
  std::unordered_map<const Operator*, std::size_t> places;  // in `found`; kNone: its inside is modelled
  for (const Kernel& kernel : kernels) {
    if (kernel.op == nullptr || kernel.recomputed) continue;
    const auto [place, is_new] = places.try_emplace(kernel.op, kNone);
    if (is_new && is_opaque(*kernel.op)) {
      place->second = found.size();
      found.push_back({.function = kernel.op->name});
    }
    if (place->second != kNone) found[place->second].calls += kernel.repeats;
  }
  return found;
}

std::string text_of(const std::vector<OpaqueCalls>& calls) {
  std::string text;
  for (const OpaqueCalls& each : calls) {
    text += fmt::format("{}{} ({} call{})", text.empty() ? "" : ", ", each.function, each.calls,
                        each.calls == 1 ? "" : "s");
  }
  return text;
}

}  // namespace memcalc
