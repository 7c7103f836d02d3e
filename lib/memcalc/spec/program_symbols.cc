// Expressions of a program's symbols: "2*batch*sequence+1".
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>

#include "memcalc/base/bytes.h"
#include "memcalc/spec/program.h"

namespace memcalc {
namespace {

/// Recursive descent over "2*batch*(sequence//16)+1".
class Expression {
 public:
  Expression(std::string_view text, const std::vector<std::pair<std::string, std::int64_t>>& values)
      : text_(text), values_(values) {}

  [[nodiscard]] std::int64_t value() {
    const std::int64_t result = sum();
    if (at_ != text_.size()) fail();
    return result;
  }

 private:
  static constexpr int kMostDepth = 64;

  [[noreturn]] void fail() const {
    throw Error(ErrorCode::kInput, fmt::format("a program's size: cannot read '{}'", text_.substr(0, 80)));
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view word) {
    skip();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  std::int64_t sum() {
    std::int64_t result = product();
    for (;;) {
      if (take("+")) {
        result = checked_add(result, product());
      } else if (take("-")) {
        result = checked_add(result, checked_multiply(-1, product()));
      } else {
        skip();
        return result;
      }
    }
  }
  std::int64_t product() {
    std::int64_t result = factor();
    for (;;) {
      if (take("//")) {
        const std::int64_t divisor = factor();
        if (divisor <= 0) fail();
        result = result >= 0 ? result / divisor : -((divisor - 1 - result) / divisor);
      } else if (take("/")) {  // of sizes that it divides
        const std::int64_t divisor = factor();
        if (divisor <= 0) fail();
        result /= divisor;
      } else if (take("%")) {
        const std::int64_t divisor = factor();
        if (divisor <= 0) fail();
        result = (result % divisor + divisor) % divisor;
      } else if (take("*")) {
        result = checked_multiply(result, factor());
      } else {
        return result;
      }
    }
  }
  std::int64_t factor() {
    if (++depth_ > kMostDepth) fail();
    skip();
    std::int64_t result = 0;
    if (take("(")) {
      result = sum();
      if (!take(")")) fail();
    } else if (take("-")) {
      result = checked_multiply(-1, factor());
    } else if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
      const auto [end, status] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), result);
      if (status != std::errc()) fail();
      at_ = static_cast<std::size_t>(end - text_.data());
    } else if (take("min(")) {
      result = smaller(true);
    } else if (take("max(")) {
      result = smaller(false);
    } else {
      result = symbol();
    }
    --depth_;
    return result;
  }
  std::int64_t smaller(bool smallest) {
    const std::int64_t a = sum();
    if (!take(",")) fail();
    const std::int64_t b = sum();
    if (!take(")")) fail();
    return smallest ? std::min(a, b) : std::max(a, b);
  }
  std::int64_t symbol() {
    const std::size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    for (const auto& [name, value] : values_) {
      if (name == text_.substr(start, at_ - start)) return value;
    }
    fail();
  }

  std::string_view text_;
  const std::vector<std::pair<std::string, std::int64_t>>& values_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::int64_t SymbolValues::evaluate(std::string_view expression) const {
  return Expression(expression, values_).value();
}

}  // namespace memcalc
