// Error: the one exception type of memcalc. Wrong input carries where it was found; the command line prints
// it in one line and exits with 2 (or 3 for kInternal). "Does not fit" is an answer, never an Error.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace memcalc {

enum class ErrorCode {
  kUsage,        // options that contradict each other or a value outside its range
  kInput,        // a file that cannot be read, is not what it should be, or holds a wrong value
  kUnsupported,  // well-formed, but not modelled by this version
  kOverflow,     // a size beyond 2^63 - 1 bytes
  kInternal,     // a bug of memcalc
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  [[nodiscard]] ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

[[nodiscard]] inline Error overflow_error() {
  return {ErrorCode::kOverflow, "a size exceeds 2^63 - 1 bytes: check layers, hidden size, batch and sequence length"};
}

}  // namespace memcalc
