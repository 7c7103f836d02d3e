#include "files.h"

#include <fmt/core.h>

#include <cstdio>

#include "memcalc/planning.h"

namespace memcalc::cli {

std::string contents_of(const std::string& path, std::int64_t most_bytes) {
  const std::string accepted =
      fmt::format("a regular file of at most {} MiB, or - for standard input", most_bytes >> 20U);
  if (path == "-") return read_to_end(stdin, "standard input", accepted, most_bytes);
  return read_user_file(path, accepted, most_bytes);
}

}  // namespace memcalc::cli
