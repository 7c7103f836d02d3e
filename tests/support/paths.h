// Where the tests find data: the sources' specs/ and tests/measured/.
#pragma once

#include <filesystem>

namespace memcalc::test {

[[nodiscard]] inline std::filesystem::path specs_dir() { return MEMCALC_TEST_SPECS_DIR; }
[[nodiscard]] inline std::filesystem::path tests_dir() { return MEMCALC_TEST_TESTS_DIR; }
[[nodiscard]] inline std::filesystem::path measured_dir() { return tests_dir() / "measured"; }

}  // namespace memcalc::test
