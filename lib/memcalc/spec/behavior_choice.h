// What a release does, as a rule reads it, and which of such choices a computation read: versions that are alike in
// these give it the same answer, whatever else differs between them. Covered by tests/unit/profiles_test.cc.
#pragma once

#include <algorithm>
#include <bitset>
#include <concepts>
#include <cstddef>
#include <string_view>

namespace memcalc {

/// "masks.packed-check", as an argument of a template.
template <std::size_t kSize>
struct BehaviorName {
  char text[kSize] = {};

  consteval BehaviorName(const char (&name)[kSize]) { std::copy_n(name, kSize, text); }  // NOLINT: a literal
  [[nodiscard]] constexpr std::string_view view() const { return {text, kSize - 1}; }
};

/// The row of behavior_table() with this name.
[[nodiscard]] std::size_t row_of_behavior(std::string_view name);

/// While it lives, what its thread reads of behaviours is noted, by their rows.
class BehaviorReads {
 public:
  BehaviorReads() : around_(current_) { current_ = this; }
  ~BehaviorReads() {
    current_ = around_;
    if (around_ != nullptr) around_->rows_ |= rows_;
  }
  BehaviorReads(const BehaviorReads&) = delete;
  BehaviorReads& operator=(const BehaviorReads&) = delete;

  using Rows = std::bitset<64>;
  [[nodiscard]] const Rows& rows() const { return rows_; }
  void note(std::size_t row) { rows_.set(row); }

  /// Of this thread; null: nobody asks.
  [[nodiscard]] static BehaviorReads* current() { return current_; }

 private:
  static inline constinit thread_local BehaviorReads* current_ = nullptr;

  BehaviorReads* around_;
  Rows rows_;
};

/// A behaviour's value. To read it is to convert it.
template <typename T, BehaviorName kBehavior>
class BehaviorChoice {
 public:
  using Value = T;
  static constexpr std::string_view kName = kBehavior.view();

  constexpr BehaviorChoice(T value) : value_(value) {}  // NOLINT: it stands for its value

  operator T() const {  // NOLINT: the same
    if (BehaviorReads* const reads = BehaviorReads::current()) {
      static const std::size_t row = row_of_behavior(kName);
      reads->note(row);
    }
    return value_;
  }

  /// For lists of what there is, which depend on no value.
  [[nodiscard]] constexpr T unnoted() const { return value_; }

  template <std::same_as<BehaviorChoice> Other>
  friend constexpr bool operator==(const BehaviorChoice& a, const Other& b) {
    return a.value_ == b.value_;
  }
  template <std::same_as<T> Other>
  friend bool operator==(const BehaviorChoice& a, Other b) {
    return static_cast<T>(a) == b;
  }

 private:
  T value_;
};

}  // namespace memcalc
