// OperatorCall: the scope of one call of an operator.
#pragma once

#include <array>
#include <cstddef>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// Stands at the top of every operator: drops temporary arguments when the operator returns.
class OperatorCall {
 public:
  template <typename... Args>
  explicit OperatorCall(const Args&... arguments) : arguments_{&arguments...}, count_(sizeof...(arguments)) {}
  ~OperatorCall() {
    for (std::size_t i = 0; i < count_; ++i) arguments_[i]->release();
  }
  OperatorCall(const OperatorCall&) = delete;
  OperatorCall& operator=(const OperatorCall&) = delete;

 private:
  std::array<const Arg*, 5> arguments_{};
  std::size_t count_;
};

}  // namespace memcalc
