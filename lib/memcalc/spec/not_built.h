// Models that people ask for and that no family of memcalc describes yet: specs/not_built.json.
// Covered by tests/unit/spec_registry_test.cc.
#pragma once

#include <span>
#include <string>

namespace memcalc {

/// Throws Error(kUnsupported), which names the family, the families that are there and the nearest model, where a
/// file not_built.json in one of `directories` knows the name. Returns where none does.
void refuse_not_built(std::span<const std::string> directories, const std::string& reference);

}  // namespace memcalc
