// Where the tests find data: the sources' specs/ and tests/measured/, and the executable built beside them.
#pragma once

#include <filesystem>

namespace memcalc::test {

[[nodiscard]] inline std::filesystem::path specs_dir() { return MEMCALC_TEST_SPECS_DIR; }
[[nodiscard]] inline std::filesystem::path tests_dir() { return MEMCALC_TEST_TESTS_DIR; }
[[nodiscard]] inline std::filesystem::path measured_dir() { return tests_dir() / "measured"; }

#ifdef MEMCALC_TEST_EXECUTABLE
[[nodiscard]] inline std::filesystem::path memcalc_executable() { return MEMCALC_TEST_EXECUTABLE; }
#endif

}  // namespace memcalc::test
