// Where the executable finds specs/: the library is told, it never looks around.
#pragma once

#include <string>

namespace memcalc::cli {

/// In this order: `given` (--specs) where not empty, $MEMCALC_SPEC_PATH, ../share/memcalc/specs beside the executable,
/// the source tree it was built from. Throws UsageError where none is a directory.
[[nodiscard]] std::string find_specs(const std::string& given);

}  // namespace memcalc::cli
