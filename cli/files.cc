#include "files.h"

#include <cstdio>

#include "memcalc/planning.h"

namespace memcalc::cli {
namespace {

// Rows and logs are a few MiB; a trace of torch.profiler has hundreds. Twice as much is read into memory and parsed.
constexpr std::int64_t kMostBytes = std::int64_t{512} << 20U;
constexpr const char* kAccepted = "a regular file of at most 512 MiB, or - for standard input";

}  // namespace

std::string contents_of(const std::string& path) {
  if (path == "-") return read_to_end(stdin, "standard input", kAccepted, kMostBytes);
  return read_user_file(path, kAccepted, kMostBytes);
}

}  // namespace memcalc::cli
