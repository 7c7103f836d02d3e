// Recorded text under tests/measured, most of it compressed: zlib's gz* functions read both kinds.
#pragma once

#include <filesystem>
#include <sstream>

namespace memcalc::measured {

/// The text of `path`, or of `path`.gz where only that exists; a stream that has failed where neither can be read.
[[nodiscard]] std::istringstream open_recorded(const std::filesystem::path& path);

}  // namespace memcalc::measured
