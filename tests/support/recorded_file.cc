#include "support/recorded_file.h"

#include <zlib.h>

#include <array>
#include <string>
#include <utility>

namespace memcalc::measured {

std::istringstream open_recorded(const std::filesystem::path& path) {
  const std::string packed = path.string() + ".gz";
  const gzFile file = gzopen(std::filesystem::exists(packed) ? packed.c_str() : path.c_str(), "rb");
  std::string text;
  int count = -1;
  if (file != nullptr) {
    static thread_local std::array<char, 1 << 16> buffer;
    while ((count = gzread(file, buffer.data(), buffer.size())) > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(count));
    }
    gzclose(file);
  }
  std::istringstream stream(std::move(text));
  if (count < 0) stream.setstate(std::ios::failbit);  // absent, or a damaged archive
  return stream;
}

}  // namespace memcalc::measured
