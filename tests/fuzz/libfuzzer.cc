// libFuzzer's entry: the one target of this executable.
#include <cstddef>
#include <cstdint>

#include "target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  memcalc::fuzz::targets().begin()->second({reinterpret_cast<const char*>(data), size});
  return 0;
}
