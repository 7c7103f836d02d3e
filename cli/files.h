// Whole files, as the commands that read rows or logs want them.
#pragma once

#include <string>

namespace memcalc::cli {

/// "-" is standard input. Throws Error(kInput) where the file cannot be read, is no regular file or is too large.
[[nodiscard]] std::string contents_of(const std::string& path);

}  // namespace memcalc::cli
