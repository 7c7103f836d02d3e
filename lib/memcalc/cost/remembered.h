// Remembered: what a function of some numbers gave when it was asked last. Steps repeat their shapes, and so do the
// thousand runs of a plan. A thread keeps its own. Covered by tests/unit/remembered_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace memcalc {

/// `Key`: compared by ==, and hashed by its hash(), whose high bits are the most mixed. Of keys that share a place the
/// last is remembered.
template <typename Key, int kPlacesBits, typename Answer = double>
class Remembered {
 public:
  /// value(): a function of the key alone.
  template <typename Value>
  [[nodiscard]] Answer of(const Key& key, Value value) {
    if (entries_.empty()) entries_.resize(std::size_t{1} << kPlacesBits);
    std::optional<std::pair<Key, Answer>>& entry = entries_[key.hash() >> (64 - kPlacesBits)];
    if (!entry || !(entry->first == key)) entry.emplace(key, value());
    return entry->second;
  }

 private:
  std::vector<std::optional<std::pair<Key, Answer>>> entries_;
};

}  // namespace memcalc
