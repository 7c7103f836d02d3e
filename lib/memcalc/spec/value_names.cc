#include "memcalc/spec/value_names.h"

#include <algorithm>

namespace memcalc {

std::string_view own_value_name(std::span<const std::string_view> names, std::string_view value) {
  const auto has = [&](std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  if (has(value)) return value;
  for (const ValueName& each : kValueNames) {
    if (each.theirs == value && has(each.ours)) return each.ours;
  }
  return value;
}

}  // namespace memcalc
