// docs/what-goes-with-what.md: the rules of a run, by their groups, and which options exist in which runs.
// Covered by tests/cli/schema_test.py.
#pragma once

#include <string>

namespace memcalc {

[[nodiscard]] std::string render_rules();

}  // namespace memcalc
