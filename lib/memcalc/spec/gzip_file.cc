#include "memcalc/spec/gzip_file.h"

#include <fmt/core.h>
#include <zlib.h>

#include <array>
#include <cstddef>
#include <memory>

#include "memcalc/base/error.h"
#include "memcalc/spec/user_file.h"

namespace memcalc {

std::string read_gzip_file(const std::string& path, const std::string& what, std::int64_t most_bytes) {
  const OpenFile file = open_user_file(path, what);  // refuses what is no file
  const auto closed = [](gzFile handle) { gzclose(handle); };
  const std::unique_ptr<gzFile_s, decltype(closed)> handle(gzopen(path.c_str(), "rb"), closed);
  constexpr std::size_t kTypical = 1 << 19;  // of a program: so that it is not moved as it grows
  std::string text;
  text.reserve(kTypical);
  std::array<char, 1 << 16> part{};
  for (int count = 1; count > 0;) {
    count = handle ? gzread(handle.get(), part.data(), static_cast<unsigned>(part.size())) : -1;
    if (count < 0) throw Error(ErrorCode::kInput, shown_path(path) + ": damaged, or not compressed by gzip");
    text.append(part.data(), static_cast<std::size_t>(count));
    if (std::ssize(text) > most_bytes) {
      throw Error(ErrorCode::kInput, fmt::format("{}: more than {} bytes", shown_path(path), most_bytes));
    }
  }
  return text;
}

}  // namespace memcalc
