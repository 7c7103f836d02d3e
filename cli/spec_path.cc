#include "spec_path.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "arguments.h"

namespace memcalc::cli {
namespace {

namespace fs = std::filesystem;

bool exists_as_directory(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// A place that the user named must be right: falling back to another would answer from other numbers.
std::string named(const char* by, const std::string& path) {
  if (!exists_as_directory(path)) {
    throw UsageError(std::string(by) + ": expected a directory with models/ and gpus/, found '" + one_line(path) + "'");
  }
  return path;
}

}  // namespace

std::string find_specs(const std::string& given) {
  if (!given.empty()) return named("--specs", given);
  if (const char* path = std::getenv("MEMCALC_SPEC_PATH"); path != nullptr && *path != '\0') {
    return named("MEMCALC_SPEC_PATH", path);
  }
  std::error_code failed;
  const fs::path executable = fs::read_symlink("/proc/self/exe", failed);
  if (!failed) {
    const fs::path installed = executable.parent_path().parent_path() / "share" / "memcalc" / "specs";
    if (exists_as_directory(installed)) return installed.string();
  }
  if (exists_as_directory(MEMCALC_SOURCE_SPECS)) return MEMCALC_SOURCE_SPECS;
  throw UsageError("no specs found: give their directory with --specs or in MEMCALC_SPEC_PATH");
}

}  // namespace memcalc::cli
