// Layers repeat their kernels: what a kernel alone tells is asked once of those that are equal.
// Covered by tests/unit/distinct_kernels_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

class DistinctKernels {
 public:
  /// Pre: the list outlives it.
  explicit DistinctKernels(const KernelList& kernels);

  [[nodiscard]] const KernelList& kernels() const { return kernels_; }
  /// Of each, the first in the list. A few may be equal all the same.
  [[nodiscard]] const std::vector<const Kernel*>& distinct() const { return distinct_; }
  /// Which of distinct() the i-th of the list is.
  [[nodiscard]] std::size_t number_of(std::size_t i) const { return numbers_[i]; }

  /// value(kernel) of each of distinct().
  template <typename Value>
  [[nodiscard]] auto of_distinct(Value value) const {
    std::vector<decltype(value(kernels_.front()))> values;
    values.reserve(distinct_.size());
    for (const Kernel* kernel : distinct_) values.push_back(value(*kernel));
    return values;
  }
  /// Such values for each of the list.
  template <typename T>
  [[nodiscard]] std::vector<T> of_all(const std::vector<T>& values) const {
    std::vector<T> all;
    all.reserve(numbers_.size());
    for (const std::uint32_t number : numbers_) all.push_back(values[number]);
    return all;
  }

 private:
  const KernelList& kernels_;
  std::vector<const Kernel*> distinct_;
  std::vector<std::uint32_t> numbers_;
};

}  // namespace memcalc
