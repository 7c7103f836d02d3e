// The message, the code and the rule of the memcalc::Error that a call throws.
#pragma once

#include <string>

#include "memcalc/base/error.h"

namespace memcalc {

/// "" where `call` throws nothing.
template <typename Call>
[[nodiscard]] std::string error_text(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// The code of the Error that `call` throws; kInternal where it throws none.
template <typename Call>
[[nodiscard]] ErrorCode error_code(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

/// The id of the rule that `call` breaks; "" where it breaks none.
template <typename Call>
[[nodiscard]] std::string error_rule(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.rule();
  }
  return "";
}

}  // namespace memcalc
