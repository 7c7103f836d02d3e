#include "memcalc/spec/gzip_file.h"
#include "memcalc/spec/user_file.h"

namespace memcalc {

std::string read_gzip_file(const std::string& path, const std::string& what, std::int64_t most_bytes) {
  return read_user_file(path, what, most_bytes);  // the page has unpacked it
}

}  // namespace memcalc
