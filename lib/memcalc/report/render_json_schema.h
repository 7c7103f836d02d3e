// The JSON Schema of the `run` object that reports and measured rows hold. Covered by tests/cli/schema_test.py.
#pragma once

#include <string>

namespace memcalc {

[[nodiscard]] std::string render_run_schema();

}  // namespace memcalc
