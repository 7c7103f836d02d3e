// A safetensors file: its header is read, the tensors' data are only counted. The reader wants a path, so the bytes are
// put into a file in memory.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "memcalc/spec/safetensors.h"
#include "target.h"

MEMCALC_FUZZ_TARGET(safetensors) {
  const int file = ::memfd_create("safetensors", 0);
  if (file < 0 || ::write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
  memcalc::fuzz::expect_answer_or_one_line(
      [&] { (void)memcalc::read_safetensors_header("/proc/self/fd/" + std::to_string(file)); });
  ::close(file);
}
