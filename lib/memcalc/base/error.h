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
  /// `part`: the option, key, file or name that is wrong; empty: the whole. `rule`: the id of the rule that is broken
  /// (spec/rules.h); empty: none.
  Error(ErrorCode code, const std::string& message, std::string part = {}, std::string rule = {})
      : std::runtime_error(message), code_(code), part_(std::move(part)), rule_(std::move(rule)) {}

  [[nodiscard]] ErrorCode code() const { return code_; }
  [[nodiscard]] const std::string& part() const { return part_; }
  [[nodiscard]] const std::string& rule() const { return rule_; }

 private:
  ErrorCode code_;
  std::string part_;
  std::string rule_;
};

[[nodiscard]] inline Error overflow_error() {
  return {ErrorCode::kOverflow, "a size exceeds 2^63 - 1 bytes: check layers, hidden size, batch and sequence length"};
}

}  // namespace memcalc
