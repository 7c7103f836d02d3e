// A file compressed by gzip, or a plain one. gzip_file.cc is by zlib; gzip_file_none.cc for WebAssembly, where Debian
// has no zlib and the page unpacks. Covered by tests/measured/program_test.cc.
#pragma once

#include <cstdint>
#include <string>

namespace memcalc {

/// The whole text. `what`: for messages, "a program". Throws Error(kInput) as read_user_file() does, where it is
/// damaged or, unpacked, larger than `most_bytes`.
[[nodiscard]] std::string read_gzip_file(const std::string& path, const std::string& what, std::int64_t most_bytes);

}  // namespace memcalc
