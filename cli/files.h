// Whole files, as the commands that read rows or logs want them.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/planning.h"

namespace memcalc::cli {

/// "-" is standard input. Throws Error(kInput) where the file cannot be read, is no regular file or is larger than
/// `most_bytes`.
[[nodiscard]] std::string contents_of(const std::string& path, std::int64_t most_bytes = kMostLogBytes);

}  // namespace memcalc::cli
